"""Check every byte of a data directory against every other: what `topics verify` does.

    FORMAT → snapshots → every frame of every log → every segment and its index → tag runs
    → no seq is missing

Reads each file once (logs twice), one at a time, so memory stays flat. The verdict is that of the
next start: what a crash leaves and recovery clears away is `torn` or `stray`, only bytes that were
once safe and are not any more are damage.
Reference: docs/operating/verify.md.
"""

from collections.abc import Iterator

from topics.errors import ConfigError
from topics.kernel.layout import IDX_ENTRY_BYTES
from topics.operate.check_segment import Expected
from topics.operate.check_tags import TagCheck
from topics.operate.parents import lost_parents
from topics.operate.ranges import join, subtract
from topics.operate.report import (
    FileVerdict,
    Finding,
    Kind,
    Tier,
    TopicVerdict,
    Verdict,
    VerifyReport,
    shorten,
)
from topics.operate.segment_files import Place, check_segment_files
from topics.operate.source import Meter, no_meter, read_source
from topics.operate.state import State, TopicFacts, read_state
from topics.operate.wal import Gap, Log, WalFile, read_current
from topics.storage.disk import paths
from topics.storage.disk.data_dir import FORMAT_TEXT, check_format
from topics.storage.disk.disk import Disk


def measure(disk: Disk, cold: Disk | None = None) -> int:
    """Return how many bytes a verify reads, for whoever shows progress."""
    total = sum(_sizes(disk, paths.META_DIR))
    total += sum(_sizes(disk, paths.WAL_DIR))
    for name in disk.list(paths.WAL_DIR):
        if paths.parse_shard_dir_name(name) is not None:
            total += sum(_sizes(disk, f"{paths.WAL_DIR}/{name}"))
    for tier in filter(None, (disk, cold)):
        for name in tier.list(paths.TOPICS_DIR):
            if paths.parse_topic_dir_name(name) is not None:
                total += sum(_sizes(tier, f"{paths.TOPICS_DIR}/{name}"))
    return total


def _sizes(disk: Disk, directory: str) -> Iterator[int]:
    for name in disk.list(directory):
        # Every file of ours has a suffix, but for some of a few bytes.
        if "." in name and not name.endswith(paths.TEMPORARY_SUFFIX):
            yield disk.size(f"{directory}/{name}")


def verify(disk: Disk, *, cold: Disk | None = None, meter: Meter = no_meter) -> VerifyReport:
    """Check a directory that nobody has open; changes nothing."""
    return _Verify(disk, cold, meter).run()


class _Verify:
    """One pass. Lives only while it runs."""

    def __init__(self, disk: Disk, cold: Disk | None, meter: Meter) -> None:
        self._disk = disk
        self._cold = cold
        self._told = meter
        self._bytes = 0
        self._files: list[FileVerdict] = []
        self._topics: list[TopicVerdict] = []
        self._notes: list[str] = []
        self._records = 0

    def run(self) -> VerifyReport:
        self._files.append(check_format_file(self._disk))
        state = read_state(self._disk, meter=self._meter)
        require_cold(state, self._disk, self._cold)
        self._check_snapshots(state)
        for log in state.logs:
            self._check_log(state, log)
        for topic_id in sorted(state.topics):
            self._check_topic(state.topics[topic_id])
        self._check_unknown(state)
        self._check_parents(state)
        files = sorted(self._files, key=lambda file: (file.tier, file.path))
        bad = any(f.is_bad for f in files) or any(t.verdict != "ok" for t in self._topics)
        return VerifyReport(
            healthy=not bad,
            files=files,
            topics=self._topics,
            notes=self._notes,
            bytes_checked=self._bytes,
            wal_frames=sum(file.frames for log in state.logs for file in log.files),
            segment_records=self._records,
        )

    def _meter(self, size: int) -> None:
        self._bytes += size
        self._told(size)

    def _add(
        self,
        path: str,
        kind: Kind,
        verdict: Verdict = "ok",
        *,
        tier: Tier = "hot",
        size: int = 0,
        items: int = 0,
        findings: list[Finding] | None = None,
    ) -> None:
        self._files.append(
            FileVerdict(
                path=path,
                kind=kind,
                verdict=verdict,
                tier=tier,
                bytes=size,
                items=items,
                findings=shorten(findings or []),
            )
        )

    # Snapshots.

    def _check_snapshots(self, state: State) -> None:
        for found in state.snapshots:
            findings = [Finding(message=found.problem)] if found.snapshot is None else []
            items = len(found.snapshot.topics) if found.snapshot else 0
            self._add(
                found.path,
                "snapshot",
                "damaged" if findings else "ok",
                size=found.size,
                items=items,
                findings=findings,
            )
            if found.snapshot is not None and found is not state.used:
                self._check_fallback(found.path, {d: p.file for d, p in found.places.items()})
        for name in self._disk.list(paths.META_DIR):
            if name.endswith(paths.TEMPORARY_SUFFIX):
                self._add(f"{paths.META_DIR}/{name}", "snapshot", "stray")
        if state.later_frames:
            names = ", ".join(sorted(state.later_frames))
            self._notes.append(f"the WAL has {names} frames: a newer topics wrote them")

    def _check_fallback(self, path: str, places: dict[str, int]) -> None:
        for directory, number in places.items():
            if not self._disk.exists(f"{directory}/{paths.wal_file_name(number)}"):
                self._notes.append(
                    f"{path} cannot stand in for the newest snapshot: it starts in "
                    f"{directory}/{paths.wal_file_name(number)}, which is gone"
                )

    # Logs.

    def _check_log(self, state: State, log: Log) -> None:
        for file in log.files:
            gaps = [g for g in log.gaps if g.at.file == file.number and g.missing is None]
            cut = log.cut
            verdict: Verdict = "ok"
            if file.undecodable or _strangers(state, log, file) or not all(g.torn for g in gaps):
                verdict = "damaged"
            elif gaps or (cut is not None and file.number > cut.file):
                verdict = "torn"
            findings = [*map(_gap_finding, gaps), *file.undecodable, *_strangers(state, log, file)]
            if verdict == "torn" and not gaps:
                findings.append(
                    Finding(message="behind the end of the log: the next start removes it")
                )
            self._add(
                log.path(file.number),
                "wal",
                verdict if log.in_use else "stray",
                size=file.size,
                items=file.frames,
                findings=findings,
            )
        for gap in log.gaps:
            if gap.missing is not None:
                self._add(
                    log.path(gap.missing),
                    "wal",
                    "torn" if gap.torn else "missing",
                    findings=[Finding(message=gap.message)],
                )
        self._check_current(log)

    def _check_current(self, log: Log) -> None:
        path = f"{log.directory}/{paths.CURRENT}"
        if not log.in_use or not log.files:
            return
        named = read_current(self._disk, log.directory)
        if named == log.files[-1].number:
            self._add(path, "current")
        else:
            message = "names no file, or an older one: nothing but people reads it"
            findings = [Finding(message=message)] if named is None or named < log.end.file else []
            self._add(path, "current", "torn", findings=findings)

    # Topics.

    def _check_unknown(self, state: State) -> None:
        for topic_id in sorted(state.unknown_ids):
            message = "the WAL names this topic, but nothing has created it"
            self._topics.append(_lost_topic(topic_id, message))
        for disk, tier in self._tiers():
            for name in disk.list(paths.TOPICS_DIR):
                found = paths.parse_topic_dir_name(name)
                if found is None or found in state.topics:
                    continue
                path = paths.topic_dir(found)
                if found < state.next_topic_id or tier == "cold":
                    self._add(path, "topic", "stray", tier=tier)
                else:
                    message = "belongs to a topic that neither snapshot nor WAL knows"
                    findings = [Finding(message=message)]
                    self._add(path, "topic", "damaged", tier=tier, findings=findings)

    def _check_parents(self, state: State) -> None:
        """Name the partitions that a start would refuse: those of a parent nothing knows."""
        for parent_id, topics in lost_parents(state.topics.values(), state.parents).items():
            names = ", ".join(sorted(topic.name or "?" for topic in topics)[:5])
            message = f"its partitions are there ({names}), but nothing has created it"
            self._topics.append(_lost_topic(parent_id, message))

    def _tiers(self) -> list[tuple[Disk, Tier]]:
        tiers: list[tuple[Disk, Tier]] = [(self._disk, "hot")]
        return tiers if self._cold is None else [*tiers, (self._cold, "cold")]

    def _check_topic(self, topic: TopicFacts) -> None:
        files = TopicFiles(self._disk, self._cold, topic)
        tags = TagCheck(self._disk, topic.id, self._meter)
        spans = []
        for place, first_seq in enumerate(files.in_use):
            is_last = place == len(files.in_use) - 1
            keep = files.finished(first_seq) if is_last else None
            records = self._check_segment(topic, files, tags, first_seq, keep)
            spans.append((first_seq, first_seq + records - 1))
        self._check_leftovers(topic, files)
        self._files += tags.finish()
        uncovered = find_uncovered(topic, spans)
        message = "no file holds these seqs"
        self._topics.append(
            TopicVerdict(
                topic_id=topic.id,
                name=topic.name,
                verdict="damaged" if uncovered else "ok",
                earliest_seq=topic.earliest_seq,
                head_seq=max([topic.head_seq, *(last for _, last in spans)]),
                uncovered=uncovered[:1000],
                findings=shorten(
                    [Finding(message=message, first_seq=a, last_seq=b) for a, b in uncovered]
                ),
            )
        )

    def _check_segment(
        self,
        topic: TopicFacts,
        files: "TopicFiles",
        tags: TagCheck,
        first_seq: int,
        keep: int | None,
    ) -> int:
        expected, is_cold = files.expected(first_seq, keep)
        path = paths.segment_idx_path(topic.id, first_seq)
        data_disk = self._cold if is_cold else self._disk
        checked = check_segment_files(
            expected,
            data=Place(data_disk, paths.segment_data_path(topic.id, first_seq)),
            idx=Place(self._disk, path),
            copy=Place(data_disk, path) if is_cold else None,
            meter=self._meter,
        )
        within = (first_seq, first_seq + checked.records - 1)
        self._files += wanted_verdicts(topic, checked.files, within)
        if checked.pair is not None:
            tags.add(*checked.pair, first_seq, checked.records)
        self._records += checked.records
        return checked.records

    def _check_leftovers(self, topic: TopicFacts, files: "TopicFiles") -> None:
        for path, kind in files.stray:
            self._add(path, kind, "stray")
        for path in files.stray_cold:
            self._add(path, "segment", "stray", tier="cold")
        for first_seq, entries in files.idx_alone:
            path = paths.segment_data_path(topic.id, first_seq)
            last_seq = first_seq + entries - 1
            if find_uncovered(topic, [], within=(first_seq, last_seq)):
                finding = Finding(
                    message="the file is missing", first_seq=first_seq, last_seq=last_seq
                )
                self._add(path, "segment", "missing", findings=[finding])
            else:
                self._add(paths.segment_idx_path(topic.id, first_seq), "index", "stray")


def wanted_verdicts(
    topic: TopicFacts, files: list[FileVerdict], within: tuple[int, int]
) -> list[FileVerdict]:
    """Leave out the missing hot index of a segment that holds nothing live: it was reclaimed."""
    if find_uncovered(topic, [], within=within):
        return files
    return [f for f in files if (f.kind, f.tier, f.verdict) != ("index", "hot", "missing")]


class TopicFiles:
    """Which files of a topic the next start uses, and which it removes."""

    def __init__(self, disk: Disk, cold: Disk | None, topic: TopicFacts) -> None:
        directory = paths.topic_dir(topic.id)
        names = disk.list(directory)
        parsed = [(name, found) for name in names if (found := paths.parse_segment_name(name))]
        self.hot = {first_seq for _, (first_seq, kind) in parsed if kind == "data"}
        self._disk = disk
        self._topic = topic
        self._cold = {s for s in topic.cold - self.hot if cold and _has_segment(cold, topic.id, s)}
        known = self.hot | self._cold
        self.in_use = sorted(seq for seq in known if seq <= topic.absorbed_seq)
        self.idx_alone: list[tuple[int, int]] = []
        self.stray: list[tuple[str, Kind]] = []
        for name, (first_seq, kind) in parsed:
            path = f"{directory}/{name}"
            if first_seq > topic.absorbed_seq:
                self.stray.append((path, "segment" if kind == "data" else "index"))
            elif first_seq not in known:
                self.idx_alone.append((first_seq, disk.size(path) // IDX_ENTRY_BYTES))
        for name in names:
            if name.endswith(paths.TEMPORARY_SUFFIX):
                self.stray.append((f"{directory}/{name}", "segment"))
        self.stray_cold = [
            f"{directory}/{name}"
            for name in (cold.list(directory) if cold else [])
            if not ((found := paths.parse_segment_name(name)) and found[0] in self._cold)
        ]

    def expected(self, first_seq: int, keep: int | None) -> tuple[Expected, bool]:
        """Return what is known of a segment, and whether its data is in the cold tier."""
        topic, is_cold = self._topic, first_seq not in self.hot
        return Expected(
            topic_id=topic.id,
            first_seq=first_seq,
            keep=keep,
            # An ack need not be synced: a power cut may keep half of its flags and not its frame.
            flags_may_lag=is_cold or topic.pending_deletes > 0 or topic.is_queue,
        ), is_cold

    def finished(self, first_seq: int) -> int | None:
        """Return how many entries of the last segment a checkpoint has finished; None: all."""
        if first_seq in self._cold:
            return None
        topic, path = self._topic, paths.segment_idx_path(self._topic.id, first_seq)
        entries = self._disk.size(path) // IDX_ENTRY_BYTES if self._disk.exists(path) else 0
        behind = (first_seq + entries, topic.absorbed_seq)
        if entries and not find_uncovered(topic, [], within=behind):
            # Absorbed records below the live floor were never copied: then there are fewer.
            return min(entries, topic.absorbed_seq - first_seq + 1)
        return topic.absorbed_seq - first_seq + 1


def _has_segment(disk: Disk, topic_id: int, first_seq: int) -> bool:
    return disk.exists(paths.segment_data_path(topic_id, first_seq)) and disk.exists(
        paths.segment_idx_path(topic_id, first_seq)
    )


def check_format_file(disk: Disk) -> FileVerdict:
    """Read `meta/FORMAT`; raise where another version wrote the directory."""
    source = read_source(disk, paths.FORMAT)
    if source is None:
        message = "the file is missing: the directory is not whole, or none of ours"
        finding = Finding(message=message)
        return FileVerdict(path=paths.FORMAT, kind="format", verdict="missing", findings=[finding])
    content = bytes(source.data)
    if content == FORMAT_TEXT:
        return FileVerdict(path=paths.FORMAT, kind="format", bytes=len(content))
    if content.startswith(b"topics ") and content[7:-1].isdigit() and content.endswith(b"\n"):
        check_format(disk)
    finding = Finding(message=f"says {content[:40]!r} instead of {FORMAT_TEXT!r}", offset=0)
    return FileVerdict(
        path=paths.FORMAT,
        kind="format",
        verdict="damaged",
        bytes=len(content),
        findings=[finding],
    )


def require_cold(state: State, disk: Disk, cold: Disk | None) -> None:
    """Refuse to call segments missing that are only somewhere else."""
    if cold is not None:
        return
    away = 0
    for topic in state.topics.values():
        directory = paths.topic_dir(topic.id)
        names = set(disk.list(directory))
        hot = {f for name in names if (f := paths.parse_segment_name(name))}
        # One that was reclaimed has left nothing here; one that is only away has left its index.
        away += sum(1 for seq in topic.cold if (seq, "idx") in hot and (seq, "data") not in hot)
    if away:
        raise ConfigError(
            f"{away} segments are in the cold tier: name its folder with --cold DIR "
            "(an empty one, if it is lost)"
        )


def find_uncovered(
    topic: TopicFacts,
    spans: list[tuple[int, int]],
    *,
    within: tuple[int, int] | None = None,
) -> list[tuple[int, int]]:
    """Return the seqs from floor to head that are in no segment, no hole and on no log.

    What routers copied since the last checkpoint is in none of them: a start makes it again.
    """
    first_seq, last_seq = within or (1, max([topic.head_seq, *(last for _, last in spans)]))
    on_log = [(max(run.first_seq, topic.absorbed_seq + 1), run.last_seq) for run in topic.appends]
    holes = [(hole.first_seq, hole.last_seq) for hole in topic.holes]
    derived = [] if topic.link is None else [(topic.absorbed_seq + 1, topic.head_seq)]
    covered = join([*spans, *on_log, *holes, *derived])
    return subtract([(max(first_seq, topic.earliest_seq), last_seq)], covered)


def _strangers(state: State, log: Log, file: WalFile) -> list[Finding]:
    """Name the topics of other shards, whose frames got into this file under a wrong name."""
    shards = len(state.used.places) if state.used else 0
    number = paths.parse_shard_dir_name(log.directory.rpartition("/")[2])
    if not log.in_use or number is None or not shards:
        return []
    return [
        Finding(message=f"frames of topic {topic_id}, which belongs to another shard")
        for topic_id in sorted(file.topic_ids)
        if topic_id % shards != number
    ]


def _gap_finding(gap: Gap) -> Finding:
    message = gap.message
    if gap.torn:
        message += ": the torn tail of a crash, cut off by the next start"
    return Finding(message=message, offset=gap.at.offset)


def _lost_topic(topic_id: int, message: str) -> TopicVerdict:
    return TopicVerdict(
        topic_id=topic_id,
        name=None,
        verdict="damaged",
        earliest_seq=0,
        head_seq=0,
        findings=[Finding(message=message)],
    )
