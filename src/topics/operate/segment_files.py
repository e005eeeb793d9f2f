"""The files of one segment, read and judged: verdicts on `.data`, `.idx` and the cold copy of it.

Pure but for reading: what `topics verify` does segment by segment, and an audit in many processes.
"""

from typing import NamedTuple

from topics.operate.check_segment import Expected, SegmentCheck, check_segment
from topics.operate.report import FileVerdict, Finding, Kind, Tier, Verdict, shorten
from topics.operate.source import Meter, Source, no_meter, read_source
from topics.storage.disk.disk import Buffer, Disk


class Place(NamedTuple):
    """A file on a disk; no disk is a tier that is not there."""

    disk: Disk | None
    path: str

    def read(self, meter: Meter) -> Source | None:
        return read_source(self.disk, self.path, meter) if self.disk is not None else None


class CheckedSegment(NamedTuple):
    """What is to be said of each file, and the pair itself where nothing is wrong with it."""

    records: int
    files: list[FileVerdict]
    pair: tuple[Buffer, Buffer] | None


def check_segment_files(
    expected: Expected,
    *,
    data: Place,
    idx: Place,
    copy: Place | None = None,
    meter: Meter = no_meter,
) -> CheckedSegment:
    """Check a segment; `copy` is the index that lies beside the data of a cold one."""
    data_source, idx_source = data.read(meter), idx.read(meter)
    copy_source = copy.read(meter) if copy is not None else None
    # Where a reclaim was cut, the hot index of a dead cold segment is gone already.
    check = check_segment(data_source, idx_source or copy_source, expected)
    tier: Tier = "hot" if copy is None else "cold"
    files = [
        _verdict(data.path, data_source, check.data, kind="segment", tier=tier, check=check),
        _verdict(idx.path, idx_source, check.idx, kind="index", tier="hot", check=check),
    ]
    if copy is not None:
        found = check_segment(data_source, copy_source, expected)
        files.append(
            _verdict(copy.path, copy_source, found.idx, kind="index", tier="cold", check=found)
        )
    pair = None
    if data_source and idx_source and not check.data and not check.idx and not check.torn:
        pair = (data_source.data, idx_source.data)
    return CheckedSegment(check.records, files, pair)


def _verdict(
    path: str,
    source: Source | None,
    findings: list[Finding],
    *,
    kind: Kind,
    tier: Tier,
    check: SegmentCheck,
) -> FileVerdict:
    verdict: Verdict = "ok"
    if source is None:
        verdict = "missing"
    elif findings:
        verdict = "damaged"
    elif check.torn:
        verdict = "torn"
    return FileVerdict(
        path=path,
        kind=kind,
        verdict=verdict,
        tier=tier,
        bytes=len(source.data) if source else 0,
        items=check.records,
        findings=shorten(findings),
    )
