"""The values the kernel returns.

They are msgspec structs because those are made in C: a batch of one record must stay cheap. None
can be part of a cycle, so the garbage collector need not follow them.
"""

import msgspec

from topics.kernel.layout import Run


class Batch(msgspec.Struct, gc=False):
    """The WAL frames of one write, not yet stamped with topic, seq, time and checksum.

    `idx` has one 20-byte entry a frame, offsets counted from the first byte of `frames`.
    """

    frames: bytearray
    idx: bytearray
    count: int
    payload_bytes: int
    envelope: dict[str, bytes]
    hashes: bytes = b""
    """Of a batch for partitions: per frame a u64, the FNV-1a of its key, or `NO_HASH`."""


class Scan(msgspec.Struct, frozen=True, gc=False):
    """What a stretch of WAL holds, up to its end or its first bad frame.

    `end` is behind the last whole batch, `stopped` where reading ended. `clean` means that it
    ended at `stop`, at a zero length, or at fewer than four zero bytes.
    """

    runs: list[Run]
    end: int
    stopped: int
    clean: bool


class Projection(msgspec.Struct, frozen=True, gc=False):
    """Records as reply JSON, comma-joined; `stop` is behind the last entry looked at."""

    json: bytes
    count: int
    stop: int


class IdxSummary(msgspec.Struct, frozen=True, gc=False):
    """One pass over an idx. The sums stop before `bad_index`, which is -1 for a sound one."""

    entries: int
    live_records: int
    live_bytes: int
    tagged_records: int
    first_ts: int
    last_ts: int
    data_end: int
    bad_index: int


class Column(msgspec.Struct, frozen=True, gc=False):
    """Texts one after the other, in the layout of an Arrow string array.

    `offsets` are int32, one more than there are records. `validity` has a bit a record, lowest
    first, 0 where the record has no such part; it is empty when none is missing.
    """

    offsets: bytes
    heap: bytes
    validity: bytes
    nulls: int


class Columns(msgspec.Struct, frozen=True, gc=False):
    """Records as columns; `seq` and `ts` are int64, a column that nobody asked for is None."""

    count: int
    seq: bytes
    ts: bytes
    data: Column | None
    meta: Column | None
    tag: Column | None
    node: Column | None
