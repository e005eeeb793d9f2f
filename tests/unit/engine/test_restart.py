"""What a stop, a kill and a power cut leave: no seq twice, no false gap, nothing deleted back."""

from pathlib import Path

import pytest
from tests.unit.engine.place import Place, gap_of, seqs_of

from topics.config import ServerConfig
from topics.embedded import Log
from topics.errors import CorruptData, DiskFailed, LimitReached, ShardReadOnly
from topics.storage.disk import paths


def test_a_disk_topic_never_uses_a_seq_twice_after_a_power_cut(place: Place) -> None:
    place.fill("a", 3)  # the first one was synced with the reservation that it had to wait for
    place.cut()
    assert seqs_of(place.log.diff("a", from_seq=0)) == [1]
    gap = gap_of(place.log.diff("a", from_seq=1))
    assert gap is not None
    assert (gap[0], gap[2]) == (2, "crash")
    assert gap[1] >= 3
    appended = place.log.append("a", [{"data": "next"}])
    assert appended.first_seq == gap[1] + 1
    page = place.log.diff("a", from_seq=1)
    assert (gap_of(page), seqs_of(page)) == (gap, [appended.first_seq])


def test_the_gap_of_a_power_cut_stays_the_same_ever_after(place: Place) -> None:
    place.fill("a", 3)
    place.cut()
    gap = gap_of(place.log.diff("a", from_seq=1))
    assert gap is not None
    place.log.append("a", [{"data": 1}])
    place.kill()
    assert gap_of(place.log.diff("a", from_seq=1)) == gap
    place.stop()
    assert gap_of(place.log.diff("a", from_seq=1)) == gap
    assert gap_of(place.log.diff("a", from_seq=2)) == (3, gap[1], "crash")


def test_synced_records_of_a_disk_topic_are_there_after_a_power_cut(place: Place) -> None:
    place.fill("a", 3)
    place.log.sync()
    place.fill("a", 2)
    place.cut()
    page = place.log.diff("a")
    assert (gap_of(page), seqs_of(page)) == (None, [1, 2, 3])
    gap = gap_of(place.log.diff("a", from_seq=3))
    assert gap is not None
    assert (gap[0], gap[2]) == (4, "crash")


def test_a_kill_announces_nothing_and_loses_nothing(place: Place) -> None:
    for durability in ("memory", "disk", "fsync"):
        place.log.create(durability, durability=durability)
        place.fill(durability, 3)
    place.kill()
    for durability in ("memory", "disk", "fsync"):
        page = place.log.diff(durability)
        assert (gap_of(page), seqs_of(page), page.head_seq) == (None, [1, 2, 3], 3)
        assert place.log.append(durability, [{"data": 1}]).first_seq == 4


def test_a_disk_that_cannot_tell_its_cache_is_taken_for_cut(place: Place) -> None:
    place.fill("a", 2)
    place.log.sync()
    place.disk._knows_page_cache = False
    place.kill()
    assert seqs_of(place.log.diff("a")) == [1, 2]
    assert place.log.state("a").head_seq > 2


def test_an_idle_topic_gives_its_reservation_back_so_that_a_cut_announces_nothing(
    place: Place,
) -> None:
    place.fill("a", 3)
    place.clock.advance_ms(1_001)
    place.log.engine.sweep()
    place.log.sync()
    place.cut()
    page = place.log.diff("a")
    assert (gap_of(page), page.head_seq) == (None, 3)
    assert place.log.append("a", [{"data": 1}]).first_seq == 4


def test_a_clean_stop_leaves_no_gap(place: Place) -> None:
    place.fill("a", 3)
    place.log.close()
    place.cut()
    page = place.log.diff("a")
    assert (gap_of(page), seqs_of(page), page.head_seq) == (None, [1, 2, 3], 3)


def test_an_fsync_topic_keeps_what_was_acknowledged_and_has_no_gap(place: Place) -> None:
    place.log.create("a", durability="fsync")
    place.fill("a", 3)
    place.cut()
    page = place.log.diff("a")
    assert (gap_of(page), seqs_of(page), page.head_seq) == (None, [1, 2, 3], 3)


@pytest.mark.parametrize("restart", ["stop", "kill", "cut"])
def test_an_ephemeral_topic_keeps_config_and_head_but_no_record(place: Place, restart: str) -> None:
    place.log.create("a", durability="ephemeral", cap_records=10)
    place.fill("a", 3)
    getattr(place, restart)()
    state = place.log.state("a")
    assert state.config.durability == "ephemeral"
    assert state.config.cap_records == 10
    assert state.head_seq >= 3
    assert state.count == 0
    assert gap_of(place.log.diff("a")) == (1, state.head_seq, "crash")
    assert place.log.append("a", [{"data": 1}]).first_seq == state.head_seq + 1


@pytest.mark.parametrize("by", ["before_seq", "match"])
def test_deleted_records_of_an_ephemeral_topic_are_not_announced_as_lost(
    place: Place, by: str
) -> None:
    place.log.create("a", durability="ephemeral")
    place.fill("a", 5, tag="x")
    place.log.checkpoint()
    place.log.delete("a", **({"before_seq": 6} if by == "before_seq" else {"match": "x"}))
    place.stop()
    page = place.log.diff("a")
    assert (gap_of(page), page.next_from_seq) == (None, 5)


@pytest.mark.parametrize("match", [None, "x"])
def test_a_delete_before_0_deletes_nothing_in_a_replay_either(
    place: Place, match: str | None
) -> None:
    place.log.create("a", durability="fsync")
    place.fill("a", 5, tag="x")
    assert place.log.delete("a", before_seq=0, match=match).deleted == 0
    place.kill()
    page = place.log.diff("a")
    assert (gap_of(page), seqs_of(page)) == (None, [1, 2, 3, 4, 5])


def test_a_topic_that_becomes_durable_keeps_its_head_though_nothing_is_left(place: Place) -> None:
    place.log.create("a", durability="ephemeral")
    place.fill("a", 3)
    place.log.delete("a", before_seq=4)
    place.log.checkpoint()
    place.log.create("a", durability="disk")
    place.kill()
    assert place.log.state("a").head_seq == 3
    assert place.log.append("a", [{"data": 1}]).first_seq == 4


# Keys and producers.


@pytest.mark.parametrize("restart", ["stop", "kill", "cut"])
def test_keys_and_producers_survive(place: Place, restart: str) -> None:
    place.log.create("a", durability="fsync", idempotency_window_ms=1_000)
    first = place.log.append("a", [{"data": 1}, {"data": 2}], idempotency_key="k")
    place.log.append("a", [{"data": 3}], producer_id="p", producer_seq=7)
    getattr(place, restart)()
    again = place.log.append("a", [{"data": "other"}], idempotency_key="k")
    assert (again.first_seq, again.count, again.deduped) == (first.first_seq, 2, True)
    again = place.log.append("a", [{"data": "other"}], producer_id="p", producer_seq=7)
    assert (again.seqs, again.deduped) == ([3], True)
    unknown = place.log.append("a", [{"data": "other"}], producer_id="p", producer_seq=5)
    assert (unknown.seqs, unknown.deduped) == ([], True)
    gap = place.log.append("a", [{"data": 4}], producer_id="p", producer_seq=9)
    assert (gap.seqs, gap.deduped) == ([4], False)
    place.clock.advance_ms(1_001)
    assert not place.log.append("a", [{"data": 5}], idempotency_key="k").deduped


@pytest.mark.parametrize("restart", ["stop", "kill", "cut"])
@pytest.mark.parametrize("work", ["", "checkpoint", "sweep"])
def test_a_producer_that_was_silent_for_its_expiry_begins_anew(
    place: Place, restart: str, work: str
) -> None:
    place.log.create("a", durability="fsync", producer_expiry_ms=1_000)
    place.log.append("a", [{"data": 1}], producer_id="p", producer_seq=7)
    place.clock.advance_ms(1_000)
    assert place.log.append("a", [{"data": 1}], producer_id="p", producer_seq=7).deduped
    place.clock.advance_ms(1)
    if work:
        getattr(place.log.engine, work)()
    anew = place.log.append("a", [{"data": 2}], producer_id="p", producer_seq=3)
    assert (anew.seqs, anew.deduped) == ([2], False)
    for _ in range(2):
        getattr(place, restart)()
        again = place.log.append("a", [{"data": 2}], producer_id="p", producer_seq=3)
        assert (again.seqs, again.deduped) == ([2], True)
    place.clock.advance_ms(500)
    following = place.log.append("a", [{"data": 3}], producer_id="p", producer_seq=4)
    assert (following.seqs, following.deduped) == ([3], False)


def test_a_producer_of_a_topic_without_expiry_is_known_for_good(place: Place) -> None:
    place.log.create("a", producer_expiry_ms=0)
    place.log.append("a", [{"data": 1}], producer_id="p", producer_seq=7)
    place.clock.advance_ms(10**12)
    place.log.engine.sweep()
    assert place.log.append("a", [{"data": 1}], producer_id="p", producer_seq=7).deduped


def test_the_memory_of_repeats_is_bounded_and_what_does_not_fit_is_refused(place: Place) -> None:
    log = place.stop(max_producers=2, max_idempotency_keys=3)
    log.create("a", producer_expiry_ms=1_000, idempotency_window_ms=100)
    for n in (1, 2):
        log.append("a", [{"data": n}], producer_id=f"p{n}", producer_seq=1)
    for n in (1, 2, 3):
        log.append("a", [{"data": n}], idempotency_key=f"k{n}")
    with pytest.raises(LimitReached) as error:
        log.append("a", [{"data": 1}], producer_id="p3", producer_seq=1)
    assert (error.value.limit, error.value.maximum) == ("max_producers", 2)
    with pytest.raises(LimitReached) as error:
        log.append("a", [{"data": 1}], idempotency_key="k4")
    assert (error.value.limit, error.value.maximum) == ("max_idempotency_keys", 3)
    assert log.state("a").head_seq == 5
    assert log.append("a", [{"data": 1}], producer_id="p1", producer_seq=1).deduped
    assert log.append("a", [{"data": 1}], idempotency_key="k1").deduped
    assert not log.append("a", [{"data": 1}], producer_id="p1", producer_seq=2).deduped
    log.append("b", [{"data": 1}], producer_id="p3", producer_seq=1)  # each topic by itself
    place.clock.advance_ms(101)
    assert not log.append("a", [{"data": 1}], idempotency_key="k4").deduped
    place.clock.advance_ms(1_000)
    assert not log.append("a", [{"data": 1}], producer_id="p3", producer_seq=1).deduped


# Segments.


def test_a_cold_segment_before_a_reclaimed_one_opens_again(place: Place) -> None:
    place.fill("a", 4)
    place.fill("a", 4, tag="x")
    place.log.delete("a", match="x")
    place.log.checkpoint()
    place.log.engine.relocate()
    place.stop()
    assert seqs_of(place.log.diff("a")) == [1, 2, 3, 4]


def test_a_cold_segment_that_was_reclaimed_is_not_missed(place: Place) -> None:
    place.fill("a", 8)
    place.log.engine.snapshot()
    assert place.log.engine.relocate() == 2
    place.log.engine.snapshot()
    place.log.delete("a", before_seq=5)
    place.log.engine.maintain()
    place.kill()
    assert seqs_of(place.log.diff("a")) == [5, 6, 7, 8]


def test_a_missing_cold_folder_is_told_and_nothing_is_removed(place: Place) -> None:
    place.fill("a", 8)
    place.log.checkpoint()
    assert place.log.engine.relocate() == 2
    place.log.close()
    cold, place.cold_disk = place.cold_disk, None
    with pytest.raises(CorruptData, match="set TOPICS_COLD_DIR"):
        place.open()
    place.cold_disk = cold
    assert seqs_of(place.open().diff("a")) == list(range(1, 9))


def test_a_rewrite_ends_though_the_last_record_is_large_and_deleted(place: Place) -> None:
    place.fill("a", 3)
    place.log.append("a", [{"data": "x" * 500, "tag": "big"}])
    place.log.checkpoint()
    place.log.delete("a", match="big")
    place.log.delete("a", before_seq=2)
    place.log.engine.maintain()
    assert seqs_of(place.log.diff("a")) == [2, 3]


def test_the_last_time_is_remembered_when_no_record_is_left(place: Place) -> None:
    place.fill("a", 4)
    place.log.checkpoint()
    written_ts = place.log.state("a").last_write_ts
    place.log.delete("a", before_seq=5)
    place.log.checkpoint()
    place.kill()
    assert place.log.state("a").last_write_ts == written_ts


@pytest.mark.parametrize("shards", [[2, 1], [3, 2, 1], [1, 3]])
@pytest.mark.parametrize("restart", ["stop", "kill"])
def test_the_shard_count_may_change_at_any_start(
    place: Place, shards: list[int], restart: str
) -> None:
    names = ["a", "b", "c"]
    for count in shards:
        for name in names:
            place.fill(name, 3)
        getattr(place, restart)(wal_shards=count)
    for name in names:
        assert seqs_of(place.log.diff(name)) == list(range(1, 3 * len(shards) + 1))
    used = {paths.wal_shard_dir(n, shards=shards[-1]) for n in range(shards[-1])}
    for directory in ["wal", *(f"wal/shard-{n:02d}" for n in range(3))]:
        has_files = any(paths.parse_wal_file_name(n) for n in place.disk.list(directory))
        assert has_files == (directory in used)


def test_an_eviction_on_behalf_of_ephemeral_records_survives_a_kill(place: Place) -> None:
    place.fill("a", 1)
    place.log.create("a", durability="ephemeral", cap_records=1)
    place.fill("a", 2)
    assert place.log.state("a").earliest_seq == 3
    place.kill()
    assert place.log.state("a").earliest_seq >= 3


def test_the_lost_index_of_a_cold_segment_comes_back_from_the_cold_tier(tmp_path: Path) -> None:
    config = ServerConfig(
        data_dir=str(tmp_path / "hot"),
        cold_dir=str(tmp_path / "cold"),
        segment_max_events=5,
        hot_retain_segments=1,
    )
    log = Log(config, background=False)
    log.append("c", [{"data": n} for n in range(20)])
    log.checkpoint()
    assert log.engine.relocate() == 3
    log.close()
    for idx in sorted((tmp_path / "hot").glob("topics/*/*.idx"))[:3]:
        idx.unlink()

    with Log(config, background=False) as again:
        assert [record.data for record in again.diff("c").records] == list(range(20))


def test_a_clean_stop_gives_back_a_reservation_that_was_still_on_its_way(place: Place) -> None:
    place.log.create("a")
    for _ in range(3):
        place.log.append("a", [{"data": n} for n in range(400)])
    place.stop()
    assert place.log.state("a").head_seq == 1200
    place.cut()
    assert place.log.state("a").head_seq == 1200


def test_damage_in_absorbed_frames_of_the_newest_wal_file_is_refused(place: Place) -> None:
    place.log.create("a", durability="fsync")
    place.fill("a", 5)
    place.log.checkpoint()
    place.fill("a", 5)
    newest = max(n for n in place.disk.list("wal") if paths.parse_wal_file_name(n) is not None)
    place.disk.flip_bit(f"wal/{newest}", 60 * 8)
    with pytest.raises(CorruptData, match="damaged at offset"):
        place.kill()


def test_a_failed_shard_does_not_keep_the_others_from_their_checkpoint(place: Place) -> None:
    place.stop(wal_shards=2)
    place.log.create("a", durability="fsync")
    place.log.create("b", durability="fsync")
    failed = place.log.engine.shard_of(place.log.engine.topic("a"))
    assert failed is not place.log.engine.shard_of(place.log.engine.topic("b"))
    place.fill("b", 3)
    failed.commit.log.fail(DiskFailed("no more"))
    with pytest.raises(ShardReadOnly):
        place.log.engine.checkpoint()
    assert place.log.engine.topic("b").absorbed_seq == 3


def test_a_hole_behind_lost_records_of_an_ephemeral_topic_does_not_stop_a_start(
    place: Place,
) -> None:
    place.log.create("a", durability="ephemeral")
    for i in range(12):
        place.log.append("a", [{"data": i, "tag": f"t{i // 4}"}])
    place.log.engine.checkpoint()
    place.log.delete("a", match="t1")
    place.log.engine.maintain()  # the segment in the middle is gone
    place.kill()
    first = place.log.diff("a")
    second = place.log.diff("a", from_seq=first.next_from_seq)
    gaps = [gap_of(first), gap_of(second)]
    assert gaps == [(1, 4, "crash"), (9, second.head_seq, "crash")]
    assert (first.records, second.records, second.caught_up) == ([], [], True)


def test_what_was_deleted_before_such_a_hole_is_not_announced(place: Place) -> None:
    place.log.create("a", durability="ephemeral")
    for i in range(12):
        place.log.append("a", [{"data": i, "tag": f"t{i // 4}"}])
    place.log.engine.checkpoint()
    place.log.delete("a", before_seq=3)
    place.log.delete("a", match="t1")
    place.log.engine.maintain()
    place.kill()
    gap = gap_of(place.log.diff("a"))
    assert gap is not None
    assert gap[0] == 3


def test_a_delete_by_tag_outlives_a_kill_and_then_a_power_cut(place: Place) -> None:
    tags = "2-1002-0012002-201-0--" * 3
    place.log.create("a")
    for i in range(0, len(tags), 4):
        records = [
            {"data": 1, "tag": tag} if tag != "-" else {"data": 1} for tag in tags[i : i + 4]
        ]
        place.log.append("a", records)
    place.log.engine.checkpoint()
    place.log.delete("a", match="0")
    left = seqs_of(place.log.diff("a"))
    place.kill()  # the flags are there, and perhaps in memory only
    place.log.engine.maintain()
    place.cut()
    assert seqs_of(place.log.diff("a")) == left
