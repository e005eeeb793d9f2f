"""Sealed segments straight from their files.

Keeps: what is read of an `.idx` and of a `.data` belongs together. A rewrite may swap the two
between the opening of one and of the other: then frames are not where the entries say, and the
pair is opened once more.
"""

from collections.abc import Iterator

import pyarrow as pa

from topics.errors import CorruptData
from topics.kernel import IDX_ENTRY_BYTES, SEGMENT_LAYOUT
from topics.pipeline.decode import Decoder, Frames
from topics.pipeline.local_files import map_file, parse_file_uri
from topics.pipeline.options import is_object_uri
from topics.pipeline.plan import Piece
from topics.storage.disk.disk import Buffer
from topics.storage.segments.segment import fitting_stop

WINDOW_RECORDS = 32_768
WINDOW_BYTES = 4 << 20  # 10,000 records of 400 B, a sealed segment: each window costs a batch
TRIES = 3


def read_segment(piece: Piece, decoder: Decoder) -> Iterator[tuple[int, pa.RecordBatch | None]]:
    """Yield batches, each with the last seq it covers, so that another reader can go on there."""
    first = piece.span.first_seq
    failed = 0
    while first <= piece.span.last_seq:
        frames = _open(piece, decoder)
        try:
            for last, batch in _windows(piece, decoder, frames, first):
                yield last, batch
                first = last + 1
        except CorruptData as error:
            failed += 1
            if failed == TRIES:
                raise CorruptData(f"{piece.data}: {error}", segment=piece.data) from None


def _open(piece: Piece, decoder: Decoder) -> Frames:
    assert piece.idx is not None
    assert piece.data is not None
    idx = _see(piece.idx)
    data = _see(piece.data) if decoder.needs_frames else b""
    return Frames(data, idx, 0, SEGMENT_LAYOUT, piece.file_first_seq)


def _see(uri: str) -> Buffer:
    if not is_object_uri(uri):
        return map_file(parse_file_uri(uri))
    from topics.pipeline.object_files import map_object  # noqa: PLC0415 - loads every object store

    return map_object(uri)


def _windows(
    piece: Piece, decoder: Decoder, frames: Frames, first_seq: int
) -> Iterator[tuple[int, pa.RecordBatch | None]]:
    start = first_seq - frames.first_seq
    stop = piece.span.last_seq - frames.first_seq + 1
    if stop * IDX_ENTRY_BYTES > len(frames.idx):
        raise CorruptData(f"the index ends before record {piece.span.last_seq}")
    while start < stop:
        upto = min(stop, start + WINDOW_RECORDS)
        if decoder.needs_frames:
            at = start * IDX_ENTRY_BYTES
            offset = int.from_bytes(frames.idx[at : at + 4], "little")
            upto = fitting_stop(frames.idx, start, upto, offset + WINDOW_BYTES)
        batch = decoder.decode(piece.span.part, frames, start, upto)
        yield frames.first_seq + upto - 1, batch
        start = upto
