"""Groups on the log and in snapshots: what is read is what was written, also twice."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.engine.groups.assign import Partition
from topics.engine.groups.group import Place
from topics.engine.groups.membership import Membership, Subscription, rebalanced
from topics.engine.groups.replay import GroupTable, commit_frame, delete_frame, state_frame
from topics.errors import CorruptData, UnknownFormat
from topics.storage.snapshots.snapshot import GroupsSnapshot, Snapshot, decode_snapshot
from topics.storage.snapshots.snapshot import encode_snapshot as encode
from topics.storage.wal.frame import Group as Frame
from topics.storage.wal.frame import decode_control

names = st.sampled_from(("g", "h"))
members = st.dictionaries(
    st.sampled_from(("a", "b", "c")),
    st.builds(Subscription, st.sampled_from((("t",), ("t", "u"))), st.integers(1_000, 300_000)),
)
places = st.dictionaries(
    st.builds(Partition, st.sampled_from(("t", "u")), st.integers(0, 3)),
    st.builds(Place, st.integers(1, 9), st.integers(0, 2**64 - 1)),
    min_size=1,
)
steps = st.lists(
    st.tuples(names, st.one_of(members, places, st.none(), st.just("snapshot"))), max_size=12
)


def written(history: Sequence[tuple[str, object]]) -> tuple[GroupTable, list[bytes], int]:
    """Live through a history; return the table, the frames, and how many a snapshot may skip."""
    table, skipped = GroupTable(), 0
    frames: list[bytes] = []
    for name, step in history:
        if step == "snapshot":
            skipped = len(frames)
        elif step is None:
            group = table.group(name)
            frames.append(delete_frame(group))
            table.floor = max(table.floor, group.generation)
            del table.groups[name]
        elif isinstance(step, dict) and isinstance(next(iter(step), None), Partition):
            table.group(name).move(step)
            frames.append(commit_frame(table.group(name), step))
        elif isinstance(step, dict):
            group = table.group(name)
            partitions = {"t": (1, 2), "u": (3,)}
            group.change(rebalanced(group.membership, members=step, partitions=partitions))
            frames.append(state_frame(group))
    return table, frames, skipped


def replayed(frames: Sequence[bytes], *, onto: GroupsSnapshot | None = None) -> GroupTable:
    table = GroupTable()
    if onto is not None:
        table.load(onto)
    for content in frames:
        body = decode_control(content, 0)
        assert isinstance(body, Frame)
        table.apply(body)
    return table


def in_a_file(saved: GroupsSnapshot) -> GroupsSnapshot:
    whole = Snapshot(next_topic_id=1, shards=[], topics=[], clean=False, groups=saved)
    return decode_snapshot(encode(whole), name="snapshot").groups


@given(steps)
def test_a_replay_gives_what_was_written(history: list[tuple[str, object]]) -> None:
    table, frames, _ = written(history)
    assert replayed(frames).save() == table.save()


@given(steps)
def test_a_snapshot_and_any_older_part_of_the_log_give_the_same(
    history: list[tuple[str, object]],
) -> None:
    table, frames, skipped = written(history)
    assert replayed(frames[skipped:], onto=in_a_file(table.save())).save() == table.save()
    assert replayed([], onto=in_a_file(table.save())).save() == table.save()


def test_a_snapshot_of_before_groups_has_none() -> None:
    table = GroupTable()
    table.load(GroupsSnapshot())
    assert (table.groups, table.floor) == ({}, 0)


def test_what_cannot_be_understood_stops_a_start() -> None:
    with pytest.raises(UnknownFormat):
        GroupTable().apply(Frame("g", "rename", {}))
    with pytest.raises(CorruptData):
        GroupTable().apply(Frame("g", "state", {"generation": "x"}))


def test_a_new_group_begins_above_every_deleted_one() -> None:
    table = GroupTable()
    table.apply(Frame("old", "delete", {"generation": 7}))
    assert table.group("new").membership == Membership(generation=7)
