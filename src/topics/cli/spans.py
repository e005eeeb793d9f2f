"""What an export reads: one span of seqs a topic, or a partition, with a fixed end."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from topics.cli.files.record import FileRecord, file_record
from topics.model.diff import Tombstone

if TYPE_CHECKING:
    from topics.client import Topics

PAGE_RECORDS: Final = 1_000
PAGE_BYTES: Final = 1024 * 1024
MEMORY_BYTES: Final = 64 * 1024 * 1024
"""Of the pages of all partitions together."""
TellGap = Callable[[str, Tombstone], None]


class Window(Struct, frozen=True, kw_only=True):
    """What was asked for: after one seq, up to another, between two times; 0 is no bound."""

    from_seq: int = 0
    to_seq: int = 0
    from_ts: int = 0
    until_ts: int = 0


class Span(Struct, frozen=True, kw_only=True):
    """Seqs of one topic, after `after_seq` and up to `last_seq`."""

    topic: str
    after_seq: int
    last_seq: int

    @property
    def length(self) -> int:
        return max(0, self.last_seq - self.after_seq)


def plan_spans(client: "Topics", topic: str, window: Window) -> list[Span]:
    """Return one span for a topic, or one a partition; they end where the topic ends now."""
    state = client.state(topic)
    heads = (
        [(topic, state.head_seq)]
        if state.partitions is None
        else [(part.topic, part.head_seq) for part in state.partitions]
    )
    return [
        Span(
            topic=name,
            after_seq=window.from_seq,
            last_seq=min(head, window.to_seq) if window.to_seq else head,
        )
        for name, head in heads
    ]


def read_spans(
    client: "Topics", spans: Sequence[Span], window: Window, tell_gap: TellGap
) -> Iterator[FileRecord]:
    """Yield the records of partitions in the order of their times, each partition in its own."""
    budget = max(1, min(PAGE_BYTES, MEMORY_BYTES // max(1, len(spans))))
    readers = [_read(client, span, window, tell_gap, budget_bytes=budget) for span in spans]
    return heapq.merge(*readers, key=lambda record: record.ts or 0)


def _read(
    client: "Topics", span: Span, window: Window, tell_gap: TellGap, *, budget_bytes: int
) -> Iterator[FileRecord]:
    from_seq = span.after_seq
    while from_seq < span.last_seq:
        page = client.diff(
            span.topic,
            from_seq=from_seq,
            from_ts=window.from_ts,
            until_ts=window.until_ts,
            limit=PAGE_RECORDS,
            max_batch_bytes=budget_bytes,
        )
        if page.tombstone is not None and page.tombstone.gap_from <= span.last_seq:
            tell_gap(span.topic, page.tombstone)
        for record in page.records:
            if record.seq > span.last_seq:
                return
            yield file_record(span.topic, record)
        if page.until_reached or page.caught_up:
            return
        from_seq = page.next_from_seq
