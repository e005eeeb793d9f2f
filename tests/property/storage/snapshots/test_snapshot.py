"""Snapshots: the same comes back, and damage is never believed."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from topics.errors import CorruptData, TopicsError, UnknownFormat
from topics.kernel import xxh3_64
from topics.storage.disk import paths
from topics.storage.segments.segment import SegmentSums
from topics.storage.snapshots import snapshot as snapshots
from topics.storage.snapshots.snapshot import (
    HEADER,
    MAGIC,
    VERSION,
    DedupeEntry,
    LinkSnapshot,
    PartitionedSnapshot,
    RestSnapshot,
    RouterSnapshot,
    ShardSnapshot,
    Snapshot,
    TopicSnapshot,
    decode_snapshot,
    encode_snapshot,
    encode_topic,
    list_snapshots,
    load_newest_snapshot,
    save_snapshot,
)
from topics.testing.hostile_disk import HostileDisk

U64 = st.integers(0, 2**64 - 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
ENTRIES = st.builds(DedupeEntry, U64, U64, U64)
LINKS = st.builds(
    LinkSnapshot,
    U64,
    U64,
    st.lists(st.builds(RouterSnapshot, NAMES, st.dictionaries(NAMES, NAMES), U64, U64), max_size=2),
)
SUMS = st.builds(SegmentSums, U64, U64, U64, U64, U64, U64, U64, U64)
RESTS = st.builds(RestSnapshot, U64, U64, U64, st.booleans(), st.lists(SUMS, max_size=3))
PLACES = st.lists(st.builds(ShardSnapshot, NAMES, U64, U64), max_size=3)
TOPICS = st.builds(
    TopicSnapshot,
    topic_id=U64,
    name=NAMES,
    created_ts=U64,
    config=st.dictionaries(NAMES, U64 | NAMES | st.none(), max_size=3),
    head_seq=U64,
    reserved_seq=U64,
    last_ts=U64,
    evict_floor=U64,
    earliest_seq=U64,
    evict_reason=NAMES,
    delete_below=U64,
    absorbed_seq=U64,
    holes=st.lists(st.tuples(U64, U64, NAMES), max_size=3),
    cold_segments=st.lists(U64, max_size=3),
    idempotency=st.dictionaries(NAMES, ENTRIES | st.binary(max_size=3), max_size=20),
    producers=st.dictionaries(
        NAMES, st.lists(st.tuples(U64, ENTRIES), max_size=3) | st.binary(max_size=3), max_size=20
    ),
    link=st.none() | LINKS,
    parent_id=U64,
    partition=U64,
    rest=st.none() | RESTS,
)
PARENTS = st.builds(
    PartitionedSnapshot, U64, NAMES, U64, st.dictionaries(NAMES, U64), st.lists(U64, max_size=3)
)
SNAPSHOTS = st.builds(
    Snapshot,
    next_topic_id=U64,
    shards=PLACES,
    topics=st.lists(TOPICS, max_size=3),
    clean=st.booleans(),
    partitioned=st.lists(PARENTS, max_size=2),
    ends=PLACES,
)
EMPTY = Snapshot(next_topic_id=1, shards=[], topics=[], clean=False)


@given(snapshot=SNAPSHOTS)
def test_a_snapshot_comes_back(snapshot: Snapshot) -> None:
    assert decode_snapshot(encode_snapshot(snapshot), name="n") == snapshot


@given(snapshot=SNAPSHOTS)
def test_topics_that_are_encoded_as_they_are_captured_make_the_same_snapshot(
    snapshot: Snapshot,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshots, "ENCODED_ENTRIES", 17)  # some maps in pieces, of two kinds
        encoded = replace(snapshot, topics=[encode_topic(topic) for topic in snapshot.topics])
    assert decode_snapshot(encode_snapshot(encoded), name="n") == snapshot


@given(snapshot=SNAPSHOTS, choose=st.data())
def test_a_cut_or_flipped_snapshot_is_refused_by_name(
    snapshot: Snapshot, choose: st.DataObject
) -> None:
    content = bytearray(encode_snapshot(snapshot))
    if choose.draw(st.booleans()):
        content = content[: choose.draw(st.integers(0, len(content) - 1))]
    else:
        bit = choose.draw(st.integers(0, len(content) * 8 - 1))
        content[bit // 8] ^= 1 << (bit % 8)
    with pytest.raises((CorruptData, UnknownFormat), match="the snapshot"):
        decode_snapshot(bytes(content), name="the snapshot")


@given(content=st.binary(max_size=80))
def test_no_bytes_break_the_decoder(content: bytes) -> None:
    with pytest.raises(TopicsError):
        decode_snapshot(content, name="n")


@given(snapshot=SNAPSHOTS)
def test_a_snapshot_of_the_first_version_is_read(snapshot: Snapshot) -> None:
    old = replace(snapshot, topics=[t for t in snapshot.topics if not _is_packed(t)])
    content = bytearray(encode_snapshot(old))
    content[4:8] = (1).to_bytes(4, "little")
    assert decode_snapshot(bytes(content), name="n") == old


def _is_packed(topic: TopicSnapshot) -> bool:
    values = [*topic.idempotency.values(), *topic.producers.values()]
    return any(isinstance(value, bytes) for value in values)


def test_a_newer_version_is_told_as_such() -> None:
    content = bytearray(encode_snapshot(EMPTY))
    magic, _, length, checksum = HEADER.unpack_from(content)
    HEADER.pack_into(content, 0, magic, VERSION + 1, length, checksum)
    with pytest.raises(UnknownFormat, match="use a newer topics"):
        decode_snapshot(bytes(content), name="n")


# On a disk.


def saved(numbers: range) -> HostileDisk:
    disk = HostileDisk()
    disk.make_dir(paths.META_DIR)
    for number in numbers:
        save_snapshot(disk, number, Snapshot(number, [], [], clean=False))
    return disk


def test_the_two_newest_stay() -> None:
    assert list_snapshots(saved(range(1, 6))) == [5, 4]


def test_names_grow_past_four_digits() -> None:
    assert list_snapshots(saved(range(9_998, 10_002))) == [10_001, 10_000]


def test_a_damaged_snapshot_is_made_good_by_the_one_before_it() -> None:
    disk = saved(range(1, 4))
    disk.flip_bit(paths.snapshot_path(3), 8 * 25)
    loaded = load_newest_snapshot(disk)
    assert loaded is not None
    assert (loaded[0], loaded[1].next_topic_id) == (2, 2)


def test_two_damaged_snapshots_stop_the_start() -> None:
    disk = saved(range(1, 4))
    disk.flip_bit(paths.snapshot_path(2), 8 * 25)
    disk.flip_bit(paths.snapshot_path(3), 8 * 25)
    with pytest.raises(CorruptData, match="no older snapshot is whole: run topics repair"):
        load_newest_snapshot(disk)


def test_no_snapshot_is_none() -> None:
    assert load_newest_snapshot(HostileDisk()) is None


@given(seed=st.integers(0, 30), cut_at=st.integers(0, 12))
def test_a_cut_while_saving_leaves_a_whole_one(seed: int, cut_at: int) -> None:
    from topics.testing.hostile_faults import FaultPlan, PowerCut  # noqa: PLC0415 - one test

    disk = saved(range(1, 3))
    disk.arm(FaultPlan().cut_power(at_call=cut_at))
    try:
        save_snapshot(disk, 3, Snapshot(3, [], [], clean=False))
        finished = True
    except PowerCut:
        finished = False
    loaded = load_newest_snapshot(disk.power_cut(seed))
    assert loaded is not None
    assert loaded[0] == 3 if finished else loaded[0] in (2, 3)


def test_a_snapshot_of_a_version_without_routers_is_read() -> None:
    topic: tuple[object, ...] = (1, "a", 0, {}, 0, 0, 0, 1, 1, "cap", 1, 0, [], [], {}, {})
    body = msgspec.msgpack.encode((2, [], [topic], True))
    content = HEADER.pack(MAGIC, VERSION, len(body), xxh3_64(body)) + body
    assert decode_snapshot(content, name="n").topics[0].link is None
