"""Records by their seqs, as JSON: what a claim shows and what a dead letter copies.

Takes no lock, as a diff does: see `topics.engine.topics.topic`. A record that was deleted or lost
meanwhile is left out.
"""

import struct
from collections.abc import Iterator, Sequence

from topics.engine.seek import read_again
from topics.engine.topics.chunk import Chunk
from topics.engine.topics.topic import Run, Topic
from topics.errors import CorruptData
from topics.kernel import IDX_ENTRY_BYTES, project_records
from topics.storage.segments.segment import Segment, View

_OFFSET_LEN = struct.Struct("<II")


def stored_bytes(topic: Topic, seq: int) -> int:
    """Return how long the frame of a record is, without reading it."""
    for run, start in topic.runs_from(seq):
        if run.first_seq + start == seq:
            size: int = _OFFSET_LEN.unpack_from(run.idx(), start * IDX_ENTRY_BYTES)[1]
            return size
        break
    return 0


def is_live(topic: Topic, seq: int) -> bool:
    return topic.floors.earliest_seq <= seq <= topic.head_seq and topic.first_live_from(seq) == seq


def read_records(topic: Topic, seqs: Sequence[int], *, verify: bool) -> dict[int, bytes]:
    """Return the live ones of ascending seqs, each as a JSON object with all its fields."""
    return read_again(topic, lambda: _read(topic, seqs, verify=verify))


def _read(topic: Topic, seqs: Sequence[int], *, verify: bool) -> dict[int, bytes]:
    earliest = topic.floors.earliest_seq
    found: dict[int, bytes] = {}
    for first_seq, last_seq in _stretches([seq for seq in seqs if seq >= earliest]):
        for run, start, count in topic.stretches_from(first_seq):
            if run.first_seq + start > last_seq:
                break
            stop = min(count, last_seq - run.first_seq + 1)
            found.update(_read_run(run, start, stop, verify=verify))
    return found


def _stretches(seqs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield ascending seqs as ranges without a gap."""
    first = last = 0
    for seq in seqs:
        if first and seq == last + 1:
            last = seq
            continue
        if first:
            yield first, last
        first = last = seq
    if first:
        yield first, last


def _read_run(run: Run, start: int, stop: int, *, verify: bool) -> Iterator[tuple[int, bytes]]:
    view = run.view(start, stop)
    needs_check = verify and not (isinstance(run, Chunk) and run.in_memory)
    for i in range(len(view.idx) // IDX_ENTRY_BYTES):
        seq = run.first_seq + start + i
        try:
            shown = _project(run, view, i, seq=seq, verify=needs_check)
        except CorruptData as error:
            name = run.data_path if isinstance(run, Segment) else "the tail in memory"
            raise CorruptData(f"{name}: {error}", segment=name) from None
        if shown:
            yield seq, shown


def _project(run: Run, view: View, index: int, *, seq: int, verify: bool) -> bytes:
    """Return one record as JSON, nothing where it is deleted."""
    return project_records(
        view.buffer,
        view.idx,
        base=view.base,
        layout=run.layout,
        first_seq=seq - index,
        start=index,
        stop=index + 1,
        limit=1,
        budget=1,
        skip_nodes=(),
        match=None,
        include_meta=True,
        include_tags=True,
        include_data=True,
        verify=verify,
    ).json
