"""Rows to appends: cut the same way each time, numbered so that none is written twice. Pure.

A task numbers its appends upwards from its batch id. The server remembers, per topic, the last
number of each producer: what a task wrote before it failed is known when it runs again.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec import UNSET, Struct

from topics.errors import BadRow
from topics.pipeline.encode import OutRecord, OutRow
from topics.pipeline.options import SinkOptions

CHUNK_BYTES: Final = 4 << 20
CHUNKS_MAX: Final = 1 << 32
"""Appends of one task in one batch; the number of the batch is above them."""


class Chunk(Struct, frozen=True):
    """One append."""

    topic: str
    producer_seq: int
    records: tuple[OutRecord, ...]

    def body(self, producer_id: str) -> bytes:
        return msgspec.json.encode(
            {
                "records": self.records,
                "producer_id": producer_id,
                "producer_seq": self.producer_seq,
            }
        )


def cut_chunks(rows: Iterable[OutRow], options: SinkOptions, *, batch_id: int) -> Iterator[Chunk]:
    """Gather the rows of each topic, and give out what is full; the rest, by name, at the end."""
    waiting: dict[str, list[OutRecord]] = {}
    sizes: dict[str, int] = {}
    number = batch_id * CHUNKS_MAX
    for row in rows:
        topic, record = _target(row, options)
        waiting.setdefault(topic, []).append(record)
        sizes[topic] = sizes.get(topic, 0) + _size(record)
        if len(waiting[topic]) == options.batch_records or sizes[topic] >= CHUNK_BYTES:
            number += 1
            yield Chunk(topic, number, tuple(waiting.pop(topic)))
            sizes[topic] = 0
    for topic in sorted(waiting):
        number += 1
        yield Chunk(topic, number, tuple(waiting[topic]))


def _size(record: OutRecord) -> int:
    """Count what may be long; a body has room for tags and the like."""
    return len(record.data) + (0 if record.meta is UNSET else len(record.meta))


def _target(row: OutRow, options: SinkOptions) -> tuple[str, OutRecord]:
    if row.topic is not None and row.record is not None:
        return row.topic, row.record
    if options.on_bad_row == "fail":
        raise BadRow(f"{row.reason}: {row.text!r}. Set onBadRow=deadLetter to keep such rows apart")
    assert options.dead_letter_topic is not None
    content = msgspec.json.encode({"reason": row.reason, "text": row.text})
    return options.dead_letter_topic, OutRecord(data=msgspec.Raw(content))
