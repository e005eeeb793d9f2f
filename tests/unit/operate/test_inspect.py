"""What inspect tells of a directory, whole or broken."""

import msgspec
import pytest
from tests.unit.operate.conftest import TOPIC, Place, flip, records

from topics.errors import RequestError
from topics.operate.inspect import inspect, list_frames


def test_it_tells_what_is_where(place: Place) -> None:
    with place.open() as log:
        log.create("orders", durability="fsync", ttl_ms=1_000_000)
        log.append("orders", records(1, 25), idempotency_key="once")
        log.append("orders", records(26, 30), producer_id="p", producer_seq=7)
        log.checkpoint()
        log.delete("orders", match=["tag", "Eq", "g:1"])
    before = place.bytes_of_all_files()
    report = inspect(place.disk)
    assert place.bytes_of_all_files() == before
    assert (report.format, report.stopped_cleanly, report.next_topic_id) == ("topics 1", True, 2)
    assert [snapshot.readable for snapshot in report.snapshots] == [True, True]
    assert [snapshot.in_use for snapshot in report.snapshots] == [True, False]
    (topic,) = report.topics
    assert (topic.name, topic.topic_id, topic.head_seq, topic.earliest_seq) == ("orders", 1, 30, 2)
    assert topic.config["ttl_ms"] == 1_000_000
    assert (topic.records, topic.idempotency_keys, topic.producers) == (24, 1, 1)
    assert [(s.first_seq, s.last_seq, s.tier, s.live_records) for s in topic.segments] == [
        (1, 10, "hot", 8),
        (11, 20, "hot", 8),
        (21, 30, "hot", 8),
    ]
    assert topic.segments[0].dead_share == pytest.approx(0.2, abs=0.01)
    assert topic.tag_runs == [(1, 10), (11, 20), (21, 30)]
    assert report.shards[0].frames_by_type["Append"] == 30
    assert report.shards[0].at_risk_bytes == 0


def test_records_on_the_log_alone_and_unproven_bytes_are_told(killed: Place) -> None:
    report = inspect(killed.disk)
    (topic,) = report.topics
    assert not report.stopped_cleanly
    assert (topic.records, topic.wal_records, topic.head_seq) == (50, 30, 50)
    (shard,) = report.shards
    last = shard.files[-1]
    assert shard.end[1] == last.used_bytes
    assert 0 < shard.at_risk_bytes < last.used_bytes, "the last batch has no SyncMark behind it"
    assert shard.synced[1] + shard.at_risk_bytes == shard.end[1]


def test_cold_segments_and_holes_are_told(place: Place) -> None:
    with place.open(cold_dir=str(place.cold), hot_retain_segments=1) as log:
        log.append("orders", records(1, 50))
        log.checkpoint()
        log.engine.relocate()
        log.delete("orders", match=["tag", "Glob", "g:*"])
        log.append("orders", records(51, 51))
        log.checkpoint()
    (topic,) = inspect(place.disk, cold=place.cold_disk).topics
    assert topic.records == 1
    assert {segment.tier for segment in topic.segments} <= {"hot", "cold"}
    assert (topic.earliest_seq, topic.head_seq) == (51, 51)


def test_a_damaged_directory_is_shown_as_far_as_it_goes(stopped: Place) -> None:
    flip(stopped.snapshots()[-1], 40)
    stopped.segment(11, "idx").unlink()
    stopped.segment(21).unlink()
    flip(stopped.wal(), 60)
    report = inspect(stopped.disk)
    assert any("does not match its checksum" in note for note in report.notes)
    assert [snapshot.readable for snapshot in report.snapshots] == [False, True]
    (topic,) = report.topics
    assert [s.first_seq for s in topic.segments] == [1, 11, 31, 41]
    assert [s.readable for s in topic.segments] == [True, False, True, True]
    assert "damaged" in report.shards[0].findings[0].message


def test_topics_that_nothing_names_are_listed(stopped: Place) -> None:
    for path in [*stopped.snapshots(), *stopped.data.glob("wal/wal-*.log")]:
        path.unlink()
    report = inspect(stopped.disk)
    assert report.topics == []
    assert report.unknown_topic_ids == [1]


def test_the_report_is_json(stopped: Place) -> None:
    shown = msgspec.json.decode(msgspec.json.encode(inspect(stopped.disk)))
    assert shown["topics"][0]["segments"][0]["tier"] == "hot"
    assert shown["shards"][0]["files"][0]["path"].startswith("wal/wal-")


# One WAL file.


def test_frames_are_listed_in_pages(killed: Place) -> None:
    path = f"wal/{killed.wal().name}"
    everything = list_frames(killed.disk, path, limit=10_000)
    assert everything.next_offset is None
    page, offset = [], 0
    while True:
        listing = list_frames(killed.disk, path, offset=offset, limit=7)
        assert len(listing.frames) <= 7
        page += listing.frames
        if listing.next_offset is None:
            break
        offset = listing.next_offset
    assert page == everything.frames
    assert [f.seq for f in page if f.type == "Append"] == list(range(1, 51))
    assert next(f for f in page if f.type == "TopicCreate").body["name"] == "orders"
    assert next(f for f in page if f.seq == 3).body == {"tag": "g:3", "payload_bytes": 1}


def test_bytes_that_are_no_frame_are_listed_as_damaged(killed: Place) -> None:
    path = f"wal/{killed.wal().name}"
    frames = list_frames(killed.disk, path, limit=10_000).frames
    victim = next(frame for frame in frames if frame.seq == 30)
    flip(killed.wal(), victim.offset + 40)
    listed = list_frames(killed.disk, path, limit=10_000).frames
    assert [(f.offset, f.bytes) for f in listed if f.type == "damaged"] == [
        (victim.offset, victim.bytes)
    ]
    assert len(listed) == len(frames)


def test_a_file_or_offset_that_is_not_there_is_refused(killed: Place) -> None:
    with pytest.raises(RequestError, match="does not exist"):
        list_frames(killed.disk, "wal/wal-00000000000000000099.log")
    with pytest.raises(RequestError, match="is outside"):
        list_frames(killed.disk, f"wal/{killed.wal().name}", offset=1 << 40)


def test_no_payload_is_read(stopped: Place) -> None:
    for path in (stopped.data / TOPIC).glob("*.data"):
        path.write_bytes(bytes(path.stat().st_size))
    assert inspect(stopped.disk).topics[0].records == 50
