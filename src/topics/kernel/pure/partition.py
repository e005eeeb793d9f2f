"""From one batch to one batch a partition.

Keeps: the frames of a partition stay in the order of the request; only the last one of each closes
its batch.
"""

from topics.kernel.batch import Batch
from topics.kernel.layout import (
    FLAG_BATCH_OPEN,
    FRAME_OVERHEAD_BYTES,
    IDX_ENTRY,
    IDX_ENTRY_BYTES,
    NO_HASH,
    U16,
    U16_MAX,
    U64,
    Buffer,
)

FNV_OFFSET = 2166136261
FNV_PRIME = 16777619


def fnv1a_32(data: Buffer) -> int:
    """Return the hash that says where a key belongs."""
    digest = FNV_OFFSET
    for byte in bytes(data):
        digest = (digest ^ byte) * FNV_PRIME & 0xFFFF_FFFF
    return digest


def place_batch(hashes: Buffer, *, partitions: int, spare: int) -> bytes:
    """Return per record a u16, its partition: `spare` for those without a key."""
    if not 1 <= partitions <= U16_MAX or not 0 <= spare < partitions:
        raise ValueError(f"{spare} is not one of {partitions} partitions")
    if len(hashes) % U64.size:
        raise ValueError("a hash is an unsigned 64-bit number")
    return b"".join(
        U16.pack(spare if digest == NO_HASH else digest % partitions)
        for (digest,) in U64.iter_unpack(hashes)
    )


def format_places(places: Buffer, first_seqs: dict[int, int], counts: dict[int, int]) -> bytes:
    """Return `[[partition,seq],…]` as JSON; 0 for a record behind the last seq of its partition."""
    if len(places) % U16.size:
        raise ValueError("a place is an unsigned 16-bit number")
    used: dict[int, int] = {}
    pairs = []
    for (place,) in U16.iter_unpack(places):
        number = used[place] = used.get(place, -1) + 1
        known = number < counts.get(place, 0)
        pairs.append(b"[%d,%d]" % (place, first_seqs[place] + number if known else 0))
    return b"[%b]" % b",".join(pairs)


def split_batch(batch: Batch, places: Buffer) -> list[tuple[int, Batch]]:
    """Copy the frames of each partition into a batch of its own, in the order of the partitions."""
    if len(batch.idx) != batch.count * IDX_ENTRY_BYTES or len(places) != batch.count * U16.size:
        raise ValueError("the batch does not have one idx entry and one place a frame")
    parts: dict[int, Batch] = {}
    last: dict[int, int] = {}
    entries = zip(IDX_ENTRY.iter_unpack(batch.idx), U16.iter_unpack(places), strict=True)
    for i, ((offset, size, ts, flags), (place,)) in enumerate(entries):
        if size < FRAME_OVERHEAD_BYTES or offset + size > len(batch.frames):
            raise ValueError(f"entry {i} of the batch points outside its frames")
        part = parts.setdefault(place, Batch(bytearray(), bytearray(), 0, 0, {}))
        start = last[place] = len(part.frames)
        part.frames += batch.frames[offset : offset + size]
        part.frames[start + 5] |= FLAG_BATCH_OPEN
        part.idx += IDX_ENTRY.pack(start, size, ts, flags)
        part.count += 1
        part.payload_bytes += size - FRAME_OVERHEAD_BYTES
    for place, start in last.items():
        parts[place].frames[start + 5] &= ~FLAG_BATCH_OPEN
    return sorted(parts.items())
