"""The frames of one HTTP/2 connection, cut into pieces that take about as long as each other.

The library that reads them is slow by the frame and takes all it is given at once, so this gives
it a few at a time, and says when a peer sends frames that cost work and ask for nothing.
Pure: no socket, no loop; time is an argument.
"""

from collections.abc import Iterable

import h2.errors
import hpack
from hpack.exceptions import HPACKDecodingError, OversizedHeaderListError

from topics.api.head import MAX_WATCH_HEAD_BYTES

PREFACE_BYTES = 24
HEAD_BYTES = 9
MAX_FRAME_BYTES = 16 * 1024
"""Of the payload of a frame: what a peer has to keep to, as we announce nothing else."""
PIECE_COST = 32
MAX_BLOCK_BYTES = MAX_WATCH_HEAD_BYTES
"""A head, packed, in all of its frames."""
MAX_FIELDS = 256
"""Fields of a head that are read; far fewer are taken."""
QUIET_S = 30.0
MAX_RESETS = 200
"""Streams a peer may take back in 30 seconds."""
MAX_CONTROL_FRAMES = 2000
"""PING, SETTINGS, PRIORITY, CONTINUATION and empty DATA frames in 30 seconds, and wide windows."""
TINY_BYTES = 64
TINY_PER_CONTROL = 10
"""So many tiny DATA frames count as one of those: a stream may well send a little at a time."""
UPDATES_PER_FRAME = 4
"""WINDOW_UPDATEs that a DATA frame of ours may bring, and a new stream."""
MAX_UPDATES_KEPT = 4000
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _WINDOW_UPDATE, _CONTINUATION = 0, 1, 3, 4, 8, 9
_QUIET_KINDS = frozenset({5, 7})
"""PUSH_PROMISE and GOAWAY end the connection."""
_COSTS = {_HEADERS: 8, _CONTINUATION: 8, _SETTINGS: 4, _DATA: 2}
_END_STREAM, _END_HEADERS, _PADDED = 1, 4, 8
_Errors = h2.errors.ErrorCodes


class FrameRefusal(Exception):
    """The connection ends, with the code that is told to the peer."""

    def __init__(self, code: h2.errors.ErrorCodes) -> None:
        super().__init__(code.name)
        self.code = code


class Frames:
    """What was received and not read yet; `cut` gives the next few whole frames of it."""

    def __init__(self, *, now_s: float) -> None:
        self._data = bytearray()
        self._skip = PREFACE_BYTES
        """Passed on with the first frames."""
        self._block_bytes = 0
        """Of the head whose frames are coming."""
        self._updates = MAX_CONTROL_FRAMES
        """How many WINDOW_UPDATEs may still come for what was sent."""
        self._counted_from_s = now_s
        self._resets = 0
        self._idle_work = 0

    def add(self, data: bytes) -> None:
        self._data += data

    def clear(self) -> None:
        self._data.clear()

    @property
    def size(self) -> int:
        return len(self._data)

    def cut(self, now_s: float) -> bytes:
        """Take the next few frames, none if none is whole; raise if there are too many."""
        data = self._data
        at, cost = self._skip, 0
        while cost < PIECE_COST and len(data) >= at + HEAD_BYTES:
            size = int.from_bytes(data[at : at + 3], "big")
            if size > MAX_FRAME_BYTES:
                raise FrameRefusal(_Errors.FRAME_SIZE_ERROR)
            end = at + HEAD_BYTES + size
            if len(data) < end:
                break
            kind = data[at + 3]
            cost += _COSTS.get(kind, 1)
            self._count(kind, data[at + 4], size, at, now_s)
            at = end
        if not cost:
            return b""
        piece = bytes(data[:at])
        del data[:at]
        self._skip = 0
        return piece

    def allow_updates(self, frames: int) -> None:
        """Expect the windows that a peer opens again for frames it was sent."""
        self._updates = min(self._updates + UPDATES_PER_FRAME * frames, MAX_UPDATES_KEPT)

    def count_reset(self, now_s: float) -> None:
        """Count a stream that was taken back, or that the peer had us take back."""
        self._begin_count(now_s)
        self._resets += 1
        if self._resets > MAX_RESETS:
            raise FrameRefusal(_Errors.ENHANCE_YOUR_CALM)

    def _count(self, kind: int, flags: int, size: int, at: int, now_s: float) -> None:
        """End a connection whose peer asks for work and never for an answer."""
        if kind == _DATA:
            if not flags & _END_STREAM:
                padding = self._data[at + HEAD_BYTES] + 1 if flags & _PADDED and size else 0
                self._count_idle_data(size - padding, now_s)
        elif kind == _HEADERS:
            self.allow_updates(1)
            self._count_block(0 if flags & _END_HEADERS else size)
        elif kind == _CONTINUATION:
            self._count_block(self._block_bytes + size)
            self._count_idle(TINY_PER_CONTROL, now_s)
        elif kind == _RST_STREAM:
            self.count_reset(now_s)
        elif kind == _WINDOW_UPDATE and self._updates:
            self._updates -= 1
        elif kind not in _QUIET_KINDS:
            self._count_idle(TINY_PER_CONTROL, now_s)

    def _count_idle_data(self, size: int, now_s: float) -> None:
        if size < TINY_BYTES:
            self._count_idle(1 if size > 0 else TINY_PER_CONTROL, now_s)

    def _count_block(self, size: int) -> None:
        self._block_bytes = size
        if size > MAX_BLOCK_BYTES:
            raise FrameRefusal(_Errors.ENHANCE_YOUR_CALM)

    def _count_idle(self, work: int, now_s: float) -> None:
        self._begin_count(now_s)
        self._idle_work += work
        if self._idle_work > MAX_CONTROL_FRAMES * TINY_PER_CONTROL:
            raise FrameRefusal(_Errors.ENHANCE_YOUR_CALM)

    def _begin_count(self, now_s: float) -> None:
        if now_s - self._counted_from_s > QUIET_S:
            self._counted_from_s = now_s
            self._resets = self._idle_work = 0


class HeadDecoder(hpack.Decoder):
    """Unpacks heads in a time that their size bounds.

    The library looks at all that is left of a head for every field of it, and takes any number of
    changes of its table, a byte each.
    """

    def __init__(self) -> None:
        super().__init__(MAX_WATCH_HEAD_BYTES)
        self._fields = 0
        self._resizes = 0

    def decode(self, data: bytes, raw: bool = False) -> Iterable[hpack.HeaderTuple]:  # noqa: FBT001, FBT002 - as the library has it
        self._fields = self._resizes = 0
        return super().decode(data, raw)

    def _decode_indexed(self, data: bytes | memoryview) -> tuple[hpack.HeaderTuple, int]:
        self._count_field()
        return super()._decode_indexed(data)

    def _decode_literal(
        self,
        data: bytes | memoryview,
        should_index: bool,  # noqa: FBT001 - as the library has it
    ) -> tuple[hpack.HeaderTuple, int]:
        self._count_field()
        return super()._decode_literal(data, should_index)

    def _update_encoding_context(self, data: bytes | memoryview) -> int:
        self._resizes += 1
        if self._resizes > 2:
            raise HPACKDecodingError("more changes of the table than one head may have")
        return super()._update_encoding_context(data)

    def _count_field(self) -> None:
        self._fields += 1
        if self._fields > MAX_FIELDS:
            raise OversizedHeaderListError("too many fields")
