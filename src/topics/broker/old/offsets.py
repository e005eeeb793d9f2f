"""Old committed offsets become the progress of groups.

Keeps: the progress of a group is never turned back; one that has members is left to them.
"""

from topics.broker.old.files import OFFSETS, OldOffset, Problem
from topics.broker.old.records import OLD_OFFSET, PRODUCER, partitions_of
from topics.broker.old.report import ImportedOffset, Notebook
from topics.embedded import Log
from topics.engine.topics.topic import Topic
from topics.errors import GroupNotFound, RequestError
from topics.model.diff import Record


def import_offset(
    log: Log | None, old: OldOffset, ends: dict[tuple[str, int], int], notebook: Notebook
) -> None:
    """Take over one offset; `ends` is where the imported partitions end."""
    end = ends.get((old.topic, old.partition))
    if end is None:
        notebook.note(Problem(OFFSETS, 0, f"{old.place}: this partition was not imported"))
        return
    if old.offset > end:
        why = f"{old.place}: offset {old.offset} is beyond the end, {end} is taken"
        notebook.note(Problem(OFFSETS, 0, why))
    offset = min(old.offset, end)
    known = None if log is None else _committed(log, old)
    try:
        if log is None or notebook.report.dry_run:
            position = offset
        else:
            position = _position(log, partitions_of(log, old.topic)[old.partition], offset)
            if known is None or position > known:
                log.commit(old.group, {old.topic: {old.partition: position}})
    except RequestError as error:
        notebook.note(Problem(OFFSETS, 0, f"{old.place}: {error}"))
        return
    is_new = known is None or position > known
    imported = ImportedOffset(
        group=old.group,
        topic=old.topic,
        partition=old.partition,
        offset=old.offset,
        position=max(known or 0, position),
        outcome="set" if is_new else "kept",
    )
    notebook.report.offsets.append(imported)


def _committed(log: Log, old: OldOffset) -> int | None:
    try:
        state = log.group_state(old.group)
    except (GroupNotFound, RequestError):  # a name that no group may have is told by the commit
        return None
    for found in state.partitions:
        if (found.topic, found.partition) == (old.topic, old.partition):
            return found.committed
    return None


def _position(log: Log, partition: Topic, offset: int) -> int:
    """Return the seq before the first record whose old offset is not below `offset`.

    It is the offset itself, unless lines of the old file could not be read.
    """
    done = partition.idempotency.last_of(PRODUCER)
    low, high = 0, done[1] if done else 0
    while low < high:
        middle = (low + high) // 2
        record = _first_behind(log, partition, middle)
        if record is None or _old_offset(record) >= offset:
            high = middle
        else:
            low = record.seq
    return low


def _first_behind(log: Log, partition: Topic, seq: int) -> Record | None:
    while True:
        page = log.diff(partition.name, from_seq=seq, limit=1)
        if page.count or page.caught_up:
            return page.records[0] if page.count else None
        seq = page.next_from_seq


def _old_offset(record: Record) -> int:
    found = (record.meta or {}).get(OLD_OFFSET)
    return found if isinstance(found, int) else 1 << 64
