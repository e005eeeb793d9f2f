"""A checkpoint converts many chunks at a time: the segments are what they would be one by one."""

from typing import Any

import pytest
from tests.unit.engine.place import Place, seqs_of

from topics.engine import checkpoint
from topics.kernel import frames_to_segment
from topics.storage.disk.disk import Buffer
from topics.testing.hostile_file import HostileFile


def segments_of(place: Place) -> list[tuple[int, int, int, bool]]:
    topic = place.log.engine.topic("t")
    return [(s.first_seq, s.last_seq, s.data_bytes, s.sealed) for s in topic.segments()]


def filled(sizes: list[int], *, durability: str = "fsync", **settings: int) -> Place:
    place = Place()
    place.log.close()
    place.open(hot_retain_segments=100, **settings)
    place.log.create("t", durability=durability)
    for size in sizes:
        place.log.append("t", [{"data": "x" * size}, {"data": "y" * (size // 3)}])
        topic = place.log.engine.topic("t")
        topic.chunks()[-1].taken = True  # the next write gets a chunk of its own
    return place


@pytest.mark.parametrize(
    "settings",
    [{"segment_max_events": 5}, {"segment_max_events": 1000, "segment_max_bytes": 1024}],
    ids=["records", "bytes"],
)
def test_segments_end_where_they_are_full_however_much_is_converted_at_a_time(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, int]
) -> None:
    sizes = [40, 500, 3, 90, 900, 250, 10, 10, 10, 10, 700, 1, 1, 80, 33] * 3
    found = []
    for at_a_time in (1, 700, 1 << 20):
        monkeypatch.setattr(checkpoint, "WRITE_BYTES", at_a_time)
        place = filled(sizes, durability="fsync", **settings)
        place.log.engine.checkpoint()
        found.append(segments_of(place))
        assert seqs_of(place.log.diff("t", limit=1000)) == list(range(1, 2 * len(sizes) + 1))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) > 5
    assert all(sealed for *_, sealed in found[0][:-1])
    if "segment_max_bytes" in settings:
        assert all(size < 1024 + 1000 for _, _, size, _ in found[0])  # the last record may pass it


def test_a_record_deleted_before_its_chunk_is_converted_is_deleted_in_the_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = filled([10] * 6, segment_max_events=1000)
    calls: list[int] = []

    def convert(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - handed on
        if not calls:
            place.log.delete("t", before_seq=4)
        calls.append(1)
        return frames_to_segment(*given, **named)

    monkeypatch.setattr(checkpoint, "frames_to_segment", convert)
    place.log.engine.checkpoint()
    assert len(calls) == 1
    assert not place.log.engine.topic("t").chunks()
    assert seqs_of(place.log.diff("t")) == list(range(4, 13))
    place.kill()
    assert seqs_of(place.log.diff("t")) == list(range(4, 13))


@pytest.mark.parametrize("flood", ["flood", "flood with tags", ""])
def test_a_flood_is_written_past_the_cache_a_segment_at_a_time_and_survives_a_power_cut(
    monkeypatch: pytest.MonkeyPatch, flood: str
) -> None:
    monkeypatch.setattr(checkpoint, "WRITE_BYTES", 1)
    place = filled([600] * 12, segment_max_events=10, checkpoint_bytes=4096, wal_shards=2)
    if flood == "flood with tags":
        place.log.append("t", [{"data": 1, "tag": "a"}])
    if not flood:
        place.log.engine.checkpoint()  # most of it
        place.log.append("t", [{"data": 1}, {"data": 2}])
    past_cache: list[int] = []
    write_past_cache = HostileFile.write_past_cache

    def note(file: HostileFile, offset: int, data: Buffer) -> None:
        past_cache.append(len(data))
        write_past_cache(file, offset, data)

    monkeypatch.setattr(HostileFile, "write_past_cache", note)
    place.log.engine.checkpoint()
    segments = [size for _, _, size, _ in segments_of(place)]
    assert past_cache == (segments if flood == "flood" else [])
    seqs = seqs_of(place.log.diff("t", limit=1000))
    place.cut()
    assert seqs_of(place.log.diff("t", limit=1000)) == seqs
