"""What an audit says: a verdict per segment, per topic and on the lake; JSON is this, as it is."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from topics.operate.report import BAD, FileVerdict, Finding, Tier, TopicVerdict, Verdict
from topics.pipeline.audit.lake import LakeVerdict
from topics.pipeline.audit.plan import AuditJob, Checked


class SegmentVerdict(Struct, frozen=True, kw_only=True):
    """One segment: the worst of what is said of its files."""

    topic: str
    first_seq: int
    records: int
    tier: str
    bytes: int
    verdict: Verdict
    findings: list[Finding] = []


class AuditReport(Struct, frozen=True, kw_only=True):
    """The verdict on everything."""

    healthy: bool
    source: str
    segments: list[SegmentVerdict]
    topics: list[TopicVerdict]
    files: list[FileVerdict]
    """Only those that are not `ok`."""
    lakes: list[LakeVerdict]
    records: int
    bytes: int
    seconds: float

    @property
    def bad_segments(self) -> list[SegmentVerdict]:
        return [segment for segment in self.segments if segment.verdict in BAD]


def sum_up(
    source: str,
    jobs: Sequence[AuditJob],
    checked: Sequence[Checked],
    verdicts: tuple[list[FileVerdict], list[TopicVerdict]],
    lakes: Iterable[LakeVerdict],
    *,
    seconds: float,
) -> AuditReport:
    """Join what was found."""
    files, topics = verdicts
    counted = {(file.path, file.tier) for file in files}
    by_place = {(job.topic, job.first_seq): job for job in jobs}
    segments = [
        _segment(found, by_place[found.topic, found.first_seq], counted)
        for found in sorted(checked, key=lambda found: (found.topic, found.first_seq))
    ]
    found_lakes = list(lakes)
    bad = (
        any(file.is_bad for file in files)
        or any(topic.verdict != "ok" for topic in topics)
        or not all(lake.healthy for lake in found_lakes)
    )
    return AuditReport(
        healthy=not bad,
        source=source,
        segments=segments,
        topics=topics,
        files=[file for file in files if file.verdict != "ok"],
        lakes=found_lakes,
        records=sum(segment.records for segment in segments),
        bytes=sum(segment.bytes for segment in segments),
        seconds=round(seconds, 3),
    )


_ORDER: dict[Verdict, int] = {"ok": 0, "torn": 1, "stray": 2, "missing": 3, "damaged": 4}


def _segment(found: Checked, job: AuditJob, counted: set[tuple[str, Tier]]) -> SegmentVerdict:
    files = [file for file in found.files if (file.path, file.tier) in counted]
    verdicts: list[Verdict] = ["ok", *(file.verdict for file in files)]
    return SegmentVerdict(
        topic=found.topic,
        first_seq=found.first_seq,
        records=found.records,
        tier=job.tier,
        bytes=sum(file.bytes for file in files),
        verdict=max(verdicts, key=_ORDER.__getitem__),
        findings=[finding for file in files for finding in file.findings],
    )
