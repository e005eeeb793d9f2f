"""Records from the server in its binary framing: the live tail, and all that no file can give.

Keeps: every seq of a span is delivered, deleted, outside the bounds, or reported as a gap.
"""

from collections.abc import Iterator

import pyarrow as pa

from topics.errors import DataLoss, TopicNotFound, TopicRecreated
from topics.kernel import SEGMENT_LAYOUT, WAL_LAYOUT
from topics.model.frames import RangePage, decode_range
from topics.pipeline.decode import Decoder, Frames
from topics.pipeline.plan import Gap, Span
from topics.pipeline.server import Server

RANGE_BYTES = 8 << 20
_LAYOUTS = {"wal": WAL_LAYOUT, "segment": SEGMENT_LAYOUT}


def read_http(span: Span, server: Server, decoder: Decoder) -> Iterator[pa.RecordBatch | Gap]:
    """Read a span page by page; what was lost since it was planned comes as a gap."""
    at = span.first_seq - 1
    while at < span.last_seq:
        try:
            content = server.read_range(
                span.part.name,
                epoch=span.epoch,
                from_seq=at,
                to_seq=span.last_seq,
                max_bytes=RANGE_BYTES,
            )
        except (TopicRecreated, TopicNotFound) as error:
            reason = "recreated" if isinstance(error, TopicRecreated) else "deleted"
            yield Gap(span.part, at + 1, span.last_seq, reason)
            return
        page = decode_range(content)
        if page.head.tombstone is not None:
            lost = page.head.tombstone
            gap_to = min(lost.gap_to, span.last_seq)
            yield Gap(span.part, max(lost.gap_from, at + 1), gap_to, lost.reason)
        yield from _batches(span, page, decoder)
        if page.head.next_from_seq <= at:
            raise DataLoss(
                f"the server has nothing of {span.part.name!r} behind seq {at}, "
                f"where records up to {span.last_seq} were planned"
            )
        at = page.head.next_from_seq


def _batches(span: Span, page: RangePage, decoder: Decoder) -> Iterator[pa.RecordBatch]:
    for part in page.parts:
        head = part.head
        frames = Frames(part.data, part.idx, head.base, _LAYOUTS[head.layout], head.first_seq)
        stop = min(head.count, span.last_seq - head.first_seq + 1)
        batch = decoder.decode(span.part, frames, 0, stop) if stop > 0 else None
        if batch is not None:
            yield batch
