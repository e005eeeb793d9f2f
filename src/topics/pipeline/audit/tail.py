"""What no file can be asked for, asked of the server: the tail, and segments that lie elsewhere.

Keeps: every seq of a tail came as a frame whose checksum holds, is deleted, or was dropped
meanwhile; what is none of it is a finding. Frames of deleted records are not looked at.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Final

from topics.errors import CorruptData, ServerRefused, TopicNotFound, TopicRecreated
from topics.kernel import SEGMENT_LAYOUT, WAL_LAYOUT, decode_columns
from topics.model.frames import RangePage, RangePart, decode_range
from topics.operate.ranges import Range, join, subtract
from topics.operate.report import FileVerdict, Finding, shorten
from topics.pipeline.audit.plan import Checked, Tail
from topics.pipeline.server import Server

PAGE_BYTES: Final = 8 << 20
_LAYOUTS: Final = {"wal": WAL_LAYOUT, "segment": SEGMENT_LAYOUT}


def check_tail(tail: Tail) -> Checked:
    """Read a tail over HTTP as if every byte of it could be wrong."""
    findings: list[Finding] = []
    covered: list[Range] = list(tail.holes)
    records = size = 0
    with closing(Server(tail.url, tail.token)) as server:
        for page in _pages(server, tail, findings, covered):
            covered.append((tail.first_seq, page.head.earliest_seq - 1))
            for part in page.parts:
                first, count = part.head.first_seq, part.head.count
                covered.append((first, first + count - 1))
                findings += _check_part(part)
                records += count
                size += part.head.data_bytes
    if not findings:
        missing = subtract([(tail.first_seq, tail.last_seq)], join(covered))
        findings = [
            Finding(message="the server has no frame of these seqs", first_seq=a, last_seq=b)
            for a, b in missing
        ]
    verdict = FileVerdict(
        path=f"{tail.url}/v0/topics/{tail.topic}/range",
        kind="segment",
        verdict="damaged" if findings else "ok",
        bytes=size,
        items=records,
        findings=shorten(findings),
    )
    return Checked(topic=tail.topic, first_seq=tail.first_seq, records=records, files=[verdict])


def _pages(
    server: Server, tail: Tail, findings: list[Finding], covered: list[Range]
) -> Iterator[RangePage]:
    """Read on until the end, or until the server cannot; a topic that is gone has no tail."""
    at = tail.first_seq - 1
    while at < tail.last_seq:
        try:
            page = decode_range(
                server.read_range(
                    tail.topic,
                    epoch=tail.epoch,
                    from_seq=at,
                    to_seq=tail.last_seq,
                    max_bytes=PAGE_BYTES,
                )
            )
        except (TopicRecreated, TopicNotFound):
            covered.append((at + 1, tail.last_seq))
            return
        except (ServerRefused, CorruptData) as error:
            server.topic(tail.topic)  # raises, if the server is what is gone
            findings.append(
                Finding(
                    message=f"cannot be read: {error}", first_seq=at + 1, last_seq=tail.last_seq
                )
            )
            return
        yield page
        if page.head.next_from_seq <= at:
            return
        at = page.head.next_from_seq


def _check_part(part: RangePart) -> list[Finding]:
    """Check all frames at once; one by one only to say which are bad."""
    try:
        _decode(part, 0, part.head.count)
    except CorruptData:
        return list(_bad_frames(part))
    return []


def _bad_frames(part: RangePart) -> Iterator[Finding]:
    for number in range(part.head.count):
        try:
            _decode(part, number, number + 1)
        except CorruptData as error:
            seq = part.head.first_seq + number
            yield Finding(message=str(error), first_seq=seq, last_seq=seq)


def _decode(part: RangePart, start: int, stop: int) -> None:
    decode_columns(
        part.data,
        part.idx,
        base=part.head.base,
        layout=_LAYOUTS[part.head.layout],
        first_seq=part.head.first_seq,
        start=start,
        stop=stop,
        columns=0,
        match=None,
        verify=True,
    )
