"""One segment: growing, sealing, delete flags, opening again, and a rewrite under the same name."""

from array import array

import pytest

from topics.engine.request import encode_write, read_write
from topics.engine.stores import Stores
from topics.errors import CorruptData
from topics.kernel import frames_to_segment, stamp_batch
from topics.limits import Limits
from topics.storage.disk import paths
from topics.storage.disk.open_maps import OpenMaps
from topics.storage.segments.rewrite import Rewrite
from topics.storage.segments.segment import Segment
from topics.storage.segments.store import FolderStore
from topics.testing.hostile_disk import HostileDisk

TOPIC_ID = 7


def converted(count: int, *, first_seq: int = 1, base: int = 0) -> tuple[bytearray, bytearray]:
    """Return segment frames and entries of records `{"data": i, "tag": "t"}`."""
    body = encode_write([{"data": i, "tag": "t"} for i in range(count)])
    batch = read_write(body, Limits()).batch
    stamp_batch(batch, topic_id=TOPIC_ID, first_seq=first_seq, ts=1_000, flags=0)
    return frames_to_segment([(batch.frames, batch.idx, 0, count)], base=base)


def empty_segment(disk: HostileDisk) -> Segment:
    return Stores(disk, cold=None).new_segment(TOPIC_ID, 1, durable=True)


def grow(segment: Segment, count: int) -> None:
    data, entries = converted(
        count, first_seq=segment.first_seq + segment.count, base=segment.data_bytes
    )
    segment.write_data(segment.data_bytes, data)
    segment.write_entries(segment.count, entries)
    segment.grow(entries, data_bytes=len(data))


@pytest.fixture
def disk() -> HostileDisk:
    return HostileDisk()


@pytest.fixture
def segment(disk: HostileDisk) -> Segment:
    segment = empty_segment(disk)
    segment.create_files()
    disk.sync_dir(paths.topic_dir(segment.topic_id))
    grow(segment, 4)
    return segment


def opened(disk: HostileDisk, *, keep: int | None = None) -> Segment:
    segment = empty_segment(disk)
    segment.load(keep=keep)
    return segment


def numbers(segment: Segment) -> tuple[int, int, int, int]:
    return segment.count, segment.data_bytes, segment.live_records, segment.live_bytes


def test_a_segment_grows_and_can_be_opened_again(disk: HostileDisk, segment: Segment) -> None:
    grow(segment, 3)
    assert (segment.first_seq, segment.last_seq, segment.live_records) == (1, 7, 7)
    segment.sync()
    segment.seal()
    assert segment.sealed
    again = opened(disk.power_cut(0))
    assert numbers(again) == numbers(segment)
    assert again.tagged_records == 7


def test_what_is_not_synced_may_be_lost(disk: HostileDisk, segment: Segment) -> None:
    segment.sync()
    grow(segment, 3)
    assert opened(disk.power_cut(0), keep=4).count == 4


def test_a_torn_tail_behind_what_is_kept_is_left_out_and_cut(
    disk: HostileDisk, segment: Segment
) -> None:
    grow(segment, 3)
    again = opened(disk, keep=5)
    assert (again.count, again.live_records) == (5, 5)
    again.reopen_active()
    assert disk.size(again.idx_path) == 5 * 20
    assert disk.size(again.data_path) == again.data_bytes
    grow(again, 1)
    assert again.last_seq == 6


def test_an_index_that_is_too_short_is_damage(disk: HostileDisk, segment: Segment) -> None:
    assert segment.count == 4
    with pytest.raises(CorruptData, match=r"seg-0000000000000001\.idx does not fit"):
        opened(disk, keep=5)
    disk.open(segment.idx_path).truncate(3 * 20)
    with pytest.raises(CorruptData, match="run topics repair"):
        opened(disk)


@pytest.mark.parametrize("sealed", [False, True], ids=["active", "sealed"])
def test_deletes_are_counted_once_and_durable_after_a_sync(
    disk: HostileDisk, segment: Segment, *, sealed: bool
) -> None:
    segment.sync()
    if sealed:
        segment.seal()
    before = segment.live_bytes
    records, size = segment.mark_deleted(array("Q", [1, 3]))
    assert (records, before - segment.live_bytes) == (2, size)
    assert segment.mark_deleted(array("Q", [1, 3])) == (0, 0)
    segment.sync()
    after = opened(disk.power_cut(0))
    assert numbers(after) == numbers(segment)
    assert after.deleted_flags() == segment.deleted_flags()


def test_a_delete_flag_torn_by_a_cut_reads_as_live_or_deleted(
    disk: HostileDisk, segment: Segment
) -> None:
    segment.sync()
    segment.seal()
    segment.mark_deleted(array("Q", [2]))
    for seed in range(20):
        after = opened(disk.power_cut(seed))
        assert after.count == 4
        assert after.live_records in (3, 4)


def test_what_a_rewrite_frees_is_what_it_says_before(disk: HostileDisk, segment: Segment) -> None:
    segment.seal()
    segment.mark_deleted(array("Q", [1, 3, 4]))
    freed, size = segment.reclaimable_bytes, disk.size(segment.data_path)
    rewrite = Rewrite(segment)
    rewrite.prepare()
    rewrite.finish()
    rewrite.settle()
    assert disk.size(segment.data_path) == size - freed == segment.data_bytes
    assert segment.reclaimable_bytes == 0, "or it would be rewritten again and again"
    assert (segment.count, segment.live_records, segment.last_seq) == (4, 1, 4)
    assert numbers(opened(disk.power_cut(0))) == numbers(segment)


def test_a_delete_during_a_rewrite_reaches_the_new_files(
    disk: HostileDisk, segment: Segment
) -> None:
    segment.seal()
    segment.mark_deleted(array("Q", [1]))
    rewrite = Rewrite(segment)
    rewrite.prepare()
    segment.mark_deleted(array("Q", [2]))
    rewrite.finish()
    rewrite.settle()
    assert segment.live_records == 2
    assert opened(disk.power_cut(0)).live_records == 2


def test_an_index_older_than_its_rewritten_data_is_built_again(
    disk: HostileDisk, segment: Segment
) -> None:
    segment.sync()
    segment.seal()
    segment.mark_deleted(array("Q", [1, 2]))
    segment.sync()
    rewrite = Rewrite(segment)
    rewrite.prepare()
    disk.rename(segment.data_path + paths.TEMPORARY_SUFFIX, segment.data_path)
    after = opened(disk)
    assert (after.count, after.live_records, after.last_seq) == (4, 2, 4)


# Stores.


def test_a_folder_store_keeps_a_pair_whole_and_by_name(disk: HostileDisk) -> None:
    data, idx = map(bytes, converted(3))
    store = FolderStore(disk, mapped=False)
    assert not store.has(TOPIC_ID, 1)
    store.put(TOPIC_ID, 1, data=data, idx=idx)
    store = FolderStore(disk.power_cut(0), mapped=False)
    assert store.has(TOPIC_ID, 1)
    assert store.list(TOPIC_ID) == [1]
    assert bytes(store.read_idx(TOPIC_ID, 1)) == idx
    assert bytes(store.open_data(TOPIC_ID, 1).read(10, 20)) == data[10:30]
    store.mark_deleted(TOPIC_ID, 1, data_offsets=[len(data) - 1], idx_flags=[(16, 9)])
    assert bytes(store.open_data(TOPIC_ID, 1).read(len(data) - 1, 1)) == b"\xd5"
    store.remove(TOPIC_ID, 1)
    store.remove(TOPIC_ID, 1)
    assert store.list(TOPIC_ID) == []
    store.remove_topic(TOPIC_ID)


def test_both_files_of_a_new_segment_count_as_open() -> None:
    stores = Stores(HostileDisk(), cold=None)
    stores.maps = OpenMaps(most=3)
    first, second = [stores.new_segment(TOPIC_ID, seq, durable=True) for seq in (1, 11)]
    first.create_files()
    assert first._active is not None
    assert first._active._data is not None
    second.create_files()
    assert first._active._data is None
