"""Which segments there should be: asked of a running server, or of a directory that is closed.

Keeps: a topic is judged by what its owner says of it, floors and holes included, never by the
files that happen to lie there.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Protocol, TypeAlias

from msgspec import Struct

from topics.errors import DirectoryLocked, OptionError
from topics.model.segments import Manifest
from topics.operate.check_segment import Expected
from topics.operate.ranges import Range, join, subtract
from topics.operate.report import FileVerdict, Finding, TopicVerdict
from topics.operate.source import hold_directory, looks_like_data
from topics.operate.state import TopicFacts, read_state
from topics.operate.verify import TopicFiles, find_uncovered, require_cold, wanted_verdicts
from topics.pipeline.local_files import open_directory, parse_file_uri
from topics.pipeline.options import Token
from topics.storage.disk import paths
from topics.storage.disk.disk import Disk, DiskLock


class SegmentJob(Struct, frozen=True, kw_only=True):
    """One segment to be read; paths are absolute."""

    topic: str
    expected: Expected
    data: str
    idx: str
    copy: str | None = None
    """The index beside cold data."""
    tier: str = "hot"
    bytes: int = 0
    last_seq: int | None = None
    """Where the owner says that it ends; None where only its index knows."""

    @property
    def first_seq(self) -> int:
        return self.expected.first_seq


class Tail(Struct, frozen=True, kw_only=True):
    """Seqs that are in no sealed segment with a file: the server is asked for them."""

    url: str
    token: Token | None = None
    topic: str
    epoch: int
    first_seq: int
    last_seq: int
    holes: list[Range] = []
    bytes: int = 0
    tier: str = "tail"


AuditJob: TypeAlias = SegmentJob | Tail


class Checked(Struct, frozen=True, kw_only=True):
    """What an executor found."""

    topic: str
    first_seq: int
    records: int
    files: list[FileVerdict]


class AuditPlan(Protocol):
    """Segments to be read, and the last word on each topic when they were."""

    jobs: list[AuditJob]

    def judge(self, checked: Iterable[Checked]) -> tuple[list[FileVerdict], list[TopicVerdict]]:
        """Return the verdicts on files and on topics."""

    def close(self) -> None: ...


class ServerPlan:
    """All that a running server has; it holds its files for as long as its pins last."""

    def __init__(
        self, manifests: Iterable[Manifest], *, url: str, token: Token | None = None
    ) -> None:
        self._manifests = {manifest.topic: manifest for manifest in manifests}
        self.jobs: list[AuditJob] = []
        for manifest in self._manifests.values():
            files = list(_jobs_of(manifest))
            self.jobs += [*files, *_tails_of(manifest, files, url=url, token=token)]

    def close(self) -> None:
        """Whoever made the pins releases them."""

    def judge(self, checked: Iterable[Checked]) -> tuple[list[FileVerdict], list[TopicVerdict]]:
        files = [file for found in checked for file in found.files]
        return files, [judge_manifest(manifest) for manifest in self._manifests.values()]


def _jobs_of(manifest: Manifest) -> Iterable[SegmentJob]:
    for segment in manifest.segments:
        if not segment.sealed or segment.location is None or segment.last_seq < 1:
            continue
        data, idx = parse_file_uri(segment.location.data), parse_file_uri(segment.location.idx)
        copy = data.removesuffix(".data") + ".idx"
        yield SegmentJob(
            topic=manifest.topic,
            # Flags are set in place while we read, first in one file and then in the other.
            expected=Expected(
                topic_id=manifest.epoch,
                first_seq=segment.first_seq,
                keep=None,
                flags_may_lag=True,
            ),
            data=data,
            idx=idx,
            copy=copy if segment.tier == "cold" else None,
            tier=segment.tier,
            bytes=segment.bytes,
            last_seq=segment.last_seq,
        )


def _tails_of(
    manifest: Manifest, files: Iterable[SegmentJob], *, url: str, token: Token | None
) -> Iterable[Tail]:
    """Say what is left when the files are read; holes are of the whole topic."""
    holes = join((hole.first_seq, hole.last_seq) for hole in manifest.holes)
    read = [(job.first_seq, job.last_seq) for job in files if job.last_seq is not None]
    wanted = [(manifest.earliest_seq, manifest.head_seq)]
    for first, last in subtract(wanted, join([*read, *holes])):
        yield Tail(
            url=url,
            token=token,
            topic=manifest.topic,
            epoch=manifest.epoch,
            first_seq=first,
            last_seq=last,
            holes=holes,
            bytes=sum(s.bytes for s in manifest.segments if first <= s.first_seq <= last),
        )


def judge_manifest(manifest: Manifest) -> TopicVerdict:
    """Say whether floors, holes and segments leave no seq out and name none twice."""
    spans: list[Range] = sorted((s.first_seq, s.last_seq) for s in manifest.segments)
    findings = [
        Finding(message="two segments hold these seqs", first_seq=after[0], last_seq=before[1])
        for before, after in pairwise(spans)
        if after[0] <= before[1]
    ]
    if not 1 <= manifest.evict_floor <= manifest.earliest_seq <= manifest.head_seq + 1:
        message = (
            f"the floors do not rise: evicted below {manifest.evict_floor}, earliest "
            f"{manifest.earliest_seq}, head {manifest.head_seq}"
        )
        findings.append(Finding(message=message))
    last = spans[-1][1] if spans else manifest.earliest_seq - 1
    holes = [(hole.first_seq, hole.last_seq) for hole in manifest.holes]
    uncovered = subtract([(manifest.earliest_seq, last)], join([*spans, *holes]))
    findings += [
        Finding(message="no file holds these seqs", first_seq=first, last_seq=last)
        for first, last in uncovered
    ]
    return TopicVerdict(
        topic_id=manifest.epoch,
        name=manifest.topic,
        verdict="damaged" if findings else "ok",
        earliest_seq=manifest.earliest_seq,
        head_seq=manifest.head_seq,
        uncovered=uncovered,
        findings=findings,
    )


class DirectoryPlan:
    """The segments of a data directory that nobody has open; it is locked until `close`."""

    def __init__(self, path: str, cold: str | None = None) -> None:
        self._path, self._cold_path = path, cold
        self._disk: Disk = open_directory(path)
        self._cold: Disk | None = None if cold is None else open_directory(cold)
        if not looks_like_data(self._disk):
            raise OptionError(f"{path} is no data directory")
        self._lock = _hold(self._disk, path)
        state = read_state(self._disk)
        require_cold(state, self._disk, self._cold)
        self._topics = {topic.id: topic for topic in state.topics.values() if topic.persists}
        self._files = {
            topic.id: TopicFiles(self._disk, self._cold, topic) for topic in self._topics.values()
        }
        self.jobs: list[AuditJob] = [
            self._job(topic, first_seq, is_last=first_seq == self._files[topic.id].in_use[-1])
            for topic in self._topics.values()
            for first_seq in self._files[topic.id].in_use
        ]

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def judge(self, checked: Iterable[Checked]) -> tuple[list[FileVerdict], list[TopicVerdict]]:
        ids = {_name(topic): topic.id for topic in self._topics.values()}
        spans: dict[int, list[Range]] = {topic_id: [] for topic_id in self._topics}
        files: list[FileVerdict] = []
        for found in checked:
            topic = self._topics[ids[found.topic]]
            span = (found.first_seq, found.first_seq + found.records - 1)
            spans[topic.id].append(span)
            files += wanted_verdicts(topic, found.files, span)
        for topic in self._topics.values():
            files += self._missing(topic)
        return files, [_judge(topic, spans[topic.id]) for topic in self._topics.values()]

    def _job(self, topic: TopicFacts, first_seq: int, *, is_last: bool) -> SegmentJob:
        files = self._files[topic.id]
        expected, is_cold = files.expected(
            first_seq, files.finished(first_seq) if is_last else None
        )
        root = self._cold_path if is_cold else self._path
        disk = self._cold if is_cold else self._disk
        assert disk is not None
        data = paths.segment_data_path(topic.id, first_seq)
        idx = paths.segment_idx_path(topic.id, first_seq)
        return SegmentJob(
            topic=_name(topic),
            expected=expected,
            data=f"{root}/{data}",
            idx=f"{self._path}/{idx}",
            copy=f"{root}/{idx}" if is_cold else None,
            tier="cold" if is_cold else "hot",
            bytes=disk.size(data),
        )

    def _missing(self, topic: TopicFacts) -> Iterable[FileVerdict]:
        """Name data whose index alone is left, if anything of it is still wanted."""
        for first_seq, entries in self._files[topic.id].idx_alone:
            within = (first_seq, first_seq + entries - 1)
            if find_uncovered(topic, [], within=within):
                finding = Finding(
                    message="the file is missing", first_seq=within[0], last_seq=within[1]
                )
                yield FileVerdict(
                    path=f"{self._path}/{paths.segment_data_path(topic.id, first_seq)}",
                    kind="segment",
                    verdict="missing",
                    findings=[finding],
                )


def _hold(disk: Disk, path: str) -> DiskLock | None:
    try:
        return hold_directory(disk)
    except DirectoryLocked:
        raise OptionError(
            f"{path} is in use: audit it through its server (url), or stop that first"
        ) from None


def _name(topic: TopicFacts) -> str:
    return topic.name or f"{topic.id:016x}"


def _judge(topic: TopicFacts, spans: list[Range]) -> TopicVerdict:
    uncovered = find_uncovered(topic, spans)
    return TopicVerdict(
        topic_id=topic.id,
        name=topic.name,
        verdict="damaged" if uncovered else "ok",
        earliest_seq=topic.earliest_seq,
        head_seq=max([topic.head_seq, *(last for _, last in spans)]),
        uncovered=uncovered,
        findings=[
            Finding(message="no file holds these seqs", first_seq=first, last_seq=last)
            for first, last in uncovered
        ],
    )
