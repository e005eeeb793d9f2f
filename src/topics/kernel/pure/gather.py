"""The bodies of many small writes, read one behind the other into one batch."""

from functools import partial

from topics.errors import TopicsError
from topics.kernel.batch import Batch
from topics.kernel.layout import FRAME_OVERHEAD_BYTES, IDX_ENTRY_BYTES, Buffer
from topics.kernel.pure.idx import shift_idx
from topics.kernel.pure.parse import parse_batch
from topics.kernel.pure.partition import place_batch, split_batch

_GATHERED_BYTES_MAX = 4 << 20
"""More is not worth waiting for, and would pass by the bounds of the queue."""


class Gathering:
    """One batch in the making; each body stays whole or not at all on the log."""

    def __init__(
        self,
        *,
        max_bytes: int,
        max_records: int,
        max_record_bytes: int,
        max_meta_bytes: int,
        max_tag_bytes: int,
        max_node_bytes: int,
    ) -> None:
        self._max_bytes = max_bytes
        self._parse = partial(
            parse_batch,
            max_records=max_records,
            max_record_bytes=max_record_bytes,
            max_meta_bytes=max_meta_bytes,
            max_tag_bytes=max_tag_bytes,
            max_node_bytes=max_node_bytes,
        )
        self._batch = _empty_batch()

    def add(self, body: Buffer) -> int:
        """Read one more body; return how many records it has.

        0 for one that was not taken, because it is wrong, has fields besides its records, or is
        larger than `max_bytes`: `parse_batch` tells what is wrong with it.
        """
        return self.add_small(body)

    def add_small(self, body: Buffer, *, max_records: int | None = None) -> int:
        """Read a body of so many records at the most; the native twin keeps this to itself."""
        batch = self._read(body)
        if batch is None or (max_records is not None and batch.count > max_records):
            return 0
        return batch.count if self.add_batch(batch) else 0

    def deal(
        self, body: Buffer, gatherings: "list[Gathering]", *, spare: int
    ) -> tuple[bytes, list[tuple[int, int]]] | None:
        """Read one more body and deal its records to partitions, each to its gathering.

        Return what `place_batch` would, and the partitions that got something with how many. None
        for one that was not taken, as with `add`: then no gathering has anything of it.
        """
        batch = self._read(body, keyed=True)
        places = place_batch(
            b"" if batch is None else batch.hashes, partitions=len(gatherings), spare=spare
        )
        if batch is None:
            return None
        parts = split_batch(batch, places)
        if not all(gatherings[place].has_room(part) for place, part in parts):
            return None
        for place, part in parts:
            gatherings[place].add_batch(part)
        return places, [(place, part.count) for place, part in parts]

    def _read(self, body: Buffer, *, keyed: bool = False) -> Batch | None:
        """Return a body as a batch; None if it is wrong, large, or more than its records."""
        if len(body) > self._max_bytes:
            return None
        try:
            batch = self._parse(body, keyed=keyed)
        except TopicsError:
            return None
        return None if batch.envelope or len(batch.frames) > self._max_bytes else batch

    def has_room(self, batch: Batch) -> bool:
        """Tell whether a write still fits; the native twin keeps this to itself."""
        return len(self._batch.frames) + len(batch.frames) <= _GATHERED_BYTES_MAX

    def add_batch(self, batch: Batch) -> bool:
        """Take one more write that was read already; False where it has no room."""
        gathered = self._batch
        if batch.count < 0 or len(batch.idx) != batch.count * IDX_ENTRY_BYTES:
            raise ValueError("the batch does not have one idx entry a frame")
        if not self.has_room(batch):
            return False
        idx = bytearray(batch.idx)
        shift_idx(idx, len(gathered.frames))
        gathered.frames += batch.frames
        gathered.idx += idx
        gathered.count += batch.count
        gathered.payload_bytes += len(batch.frames) - FRAME_OVERHEAD_BYTES * batch.count
        return True

    def take(self) -> Batch:
        """Return what was gathered, and begin anew."""
        batch, self._batch = self._batch, _empty_batch()
        return batch


def _empty_batch() -> Batch:
    return Batch(frames=bytearray(), idx=bytearray(), count=0, payload_bytes=0, envelope={})
