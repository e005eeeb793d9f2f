"""Frames to Arrow: buffers of the kernel, wrapped into the columns that a query asked for.

Keeps: no Python object is made for a record, except where `$key` in a `meta` decides its key.
"""

from array import array
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from topics.kernel import Column, Columns, Match, bisect_ts, decode_columns
from topics.pipeline.offsets import Part
from topics.pipeline.parse_value import check_value_type, parse_values
from topics.pipeline.plan import Gap
from topics.pipeline.push_down import Bounds
from topics.pipeline.schema import CORRUPT, VALUE, frame_columns

Buffer = bytes | bytearray | memoryview
_KEY = '"$key"'
_MILLIS = pa.timestamp("ms", tz="UTC")


class Frames(NamedTuple):
    """Entries and the bytes they point into, minus `base`; entry 0 is `first_seq`."""

    buffer: Buffer
    idx: Buffer
    base: int
    layout: int
    first_seq: int


class Decoder:
    """Makes batches of one schema out of frames."""

    def __init__(self, schema: pa.Schema, bounds: Bounds, *, verify: bool) -> None:
        self._schema = schema
        self._bounds = bounds
        self._columns = frame_columns(schema.names)
        if VALUE in schema.names:
            check_value_type(schema.field(VALUE).type)
        self._verify = verify
        self._same: dict[tuple[str, Part | None], pa.Array] = {}

    @property
    def needs_frames(self) -> bool:
        return bool(self._columns) or self._bounds.match is not None

    def decode(self, part: Part, frames: Frames, start: int, stop: int) -> pa.RecordBatch | None:
        """Decode the live entries [start, stop) inside the bounds, None if there are none."""
        bounds = self._bounds
        if bounds.bounds_time:
            start = bisect_ts(frames.idx, start, stop, bounds.first_ts)
            stop = bisect_ts(frames.idx, start, stop, bounds.last_ts + 1)
        match: Match | None = bounds.match
        columns = decode_columns(
            frames.buffer,
            frames.idx,
            base=frames.base,
            layout=frames.layout,
            first_seq=frames.first_seq,
            start=start,
            stop=stop,
            columns=self._columns,
            match=match,
            verify=self._verify and self.needs_frames,
        )
        return self._batch(part, columns) if columns.count else None

    def gap(self, gap: Gap) -> pa.RecordBatch:
        """Make the one row that stands for what was lost."""
        row = {
            "topic": gap.part.topic,
            "partition": gap.part.partition,
            "gap_from": gap.gap_from,
            "gap_to": gap.gap_to,
            "gap_reason": gap.reason,
        }
        arrays = [pa.array([row.get(field.name)], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _batch(self, part: Part, columns: Columns) -> pa.RecordBatch:
        made: dict[str, Any] = {}
        if VALUE in self._schema.names or CORRUPT in self._schema.names:
            value_type = (
                self._schema.field(VALUE).type if VALUE in self._schema.names else pa.struct([])
            )
            made[VALUE], made[CORRUPT] = parse_values(_texts(columns.data, columns), value_type)
        arrays = [
            made[field.name] if field.name in made else self._array(field, part, columns)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, field: pa.Field, part: Part, columns: Columns) -> pa.Array:
        if field.name in ("topic", "partition"):
            return self._repeated(field, part, columns.count)
        if field.name.startswith("gap_"):
            return self._repeated(field, None, columns.count)
        if field.name in ("seq", "ts"):
            buffer = pa.py_buffer(getattr(columns, field.name))
            numbers = pa.Array.from_buffers(pa.int64(), columns.count, [None, buffer])
            return numbers if field.name == "seq" else numbers.view(_MILLIS).cast(field.type)
        if field.name == "key":
            return _keys(columns)
        return _texts(getattr(columns, field.name), columns)

    def _repeated(self, field: pa.Field, part: Part | None, count: int) -> pa.Array:
        """Give a column that says the same for every record; made once, cut to size after that."""
        same = self._same.get((field.name, part))
        if same is None or len(same) < count:
            same = (
                pa.nulls(count, field.type) if part is None else _of_part(field.name, part, count)
            )
            self._same[field.name, part] = same
        return same.slice(0, count)


def _of_part(name: str, part: Part, count: int) -> pa.Array:
    """Say the same for every record; by buffers, as `pa.scalar` loads pandas: half a second."""
    if name == "partition":
        numbers = pa.py_buffer(part.partition.to_bytes(4, "little") * count)
        return pa.Array.from_buffers(pa.int32(), count, [None, numbers])
    text = part.topic.encode()
    offsets = array("i", range(0, len(text) * count + 1, len(text)))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text * count)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def _texts(column: Column | None, columns: Columns) -> pa.Array:
    assert column is not None
    validity = pa.py_buffer(column.validity) if column.nulls else None
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.heap)]
    return pa.Array.from_buffers(pa.string(), columns.count, buffers, column.nulls)


def _keys(columns: Columns) -> pa.Array:
    """Give the key of each record: `$key` of its meta, else its tag."""
    tags = _texts(columns.tag, columns)
    metas = _texts(columns.meta, columns)
    if metas.null_count == len(metas) or not pc.any(pc.match_substring(metas, _KEY)).as_py():
        return tags
    keys = [
        _key_of(meta) or tag for meta, tag in zip(metas.to_pylist(), tags.to_pylist(), strict=True)
    ]
    return pa.array(keys, pa.string())


def _key_of(meta: str | None) -> str | None:
    if meta is None or _KEY not in meta:
        return None
    key = msgspec.json.decode(meta).get("$key")
    return key if isinstance(key, str) else None
