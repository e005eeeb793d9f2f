"""The bodies of many small writes, read one behind the other into one batch."""

from functools import partial

from topics.errors import TopicsError
from topics.kernel.batch import Batch
from topics.kernel.layout import FRAME_OVERHEAD_BYTES, IDX_ENTRY_BYTES, Buffer
from topics.kernel.pure.idx import shift_idx
from topics.kernel.pure.parse import parse_batch

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
        if len(body) > self._max_bytes:
            return 0
        try:
            batch = self._parse(body)
        except TopicsError:
            return 0
        if batch.envelope or len(batch.frames) > self._max_bytes:
            return 0
        return batch.count if self.add_batch(batch) else 0

    def add_batch(self, batch: Batch) -> bool:
        """Take one more write that was read already; False where it has no room."""
        gathered = self._batch
        if batch.count < 0 or len(batch.idx) != batch.count * IDX_ENTRY_BYTES:
            raise ValueError("the batch does not have one idx entry a frame")
        if len(gathered.frames) + len(batch.frames) > _GATHERED_BYTES_MAX:
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
