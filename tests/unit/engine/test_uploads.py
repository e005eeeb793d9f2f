"""Segments built elsewhere become a topic, whole; what is not right is refused and stays out."""

from typing import Any

import pytest
from tests.unit.engine.place import Place, seqs_of

from topics.engine.attach import check_segment
from topics.errors import (
    LimitReached,
    RequestError,
    StorageError,
    TopicExistsIncompatible,
    UploadNotFound,
)
from topics.kernel import xxh3_64
from topics.kernel.layout import SEGMENT_HEADER, SIZE_BYTES, U64
from topics.limits import MAX_UPLOADS, UPLOAD_MS
from topics.model.uploads import BuiltSegment, UploadState
from topics.operate.verify import verify
from topics.storage.disk import paths
from topics.testing.built_segments import Built, build_segment, describe, stage
from topics.testing.hostile_faults import FaultPlan

TS = 1_690_000_000_000


@pytest.fixture
def place() -> Place:
    return Place()


def begin(place: Place, name: str = "loaded", /, **config: object) -> UploadState:
    return place.log.engine.begin_upload(name, config)


def built(topic_id: int, *sizes: int) -> list[Built]:
    found, seq = [], 1
    for number, size in enumerate(sizes):
        records = [
            {"data": {"n": seq + i}, "tag": f"t:{(seq + i) % 3}", "meta": {"k": 1}}
            for i in range(size)
        ]
        found.append(build_segment(records, topic_id=topic_id, first_seq=seq, ts=TS + number))
        seq += size
    return found


def load(place: Place, *sizes: int, **config: object) -> UploadState:
    upload = begin(place, **config)
    segments = stage(place.disk, upload.upload, built(upload.topic_id, *sizes))
    place.log.engine.attach(upload.upload, segments)
    return upload


def data_of(place: Place) -> list[Any]:
    return [record.data["n"] for record in place.log.diff("loaded", limit=1000).records]


def files_below(place: Place, directory: str) -> list[str]:
    return [
        f"{name}/{file}"
        for name in place.disk.list(directory)
        for file in place.disk.list(f"{directory}/{name}")
    ]


def test_a_topic_is_there_with_all_its_records(place: Place) -> None:
    upload = load(place, 4, 4, 3, durability="fsync")
    state = place.log.state("loaded")
    assert (state.epoch, state.head_seq, state.count) == (upload.topic_id, 11, 11)
    assert state.earliest_seq == 1
    assert state.bytes > 0
    assert data_of(place) == list(range(1, 12))
    assert files_below(place, paths.UPLOADS_DIR) == []
    assert place.log.append("loaded", [{"data": {"n": 12}}]).first_seq == 12


@pytest.mark.parametrize("how", ["stop", "kill", "cut"])
@pytest.mark.parametrize("snapshots", [0, 1, 2])
def test_it_survives_whatever_ends_the_process(place: Place, how: str, snapshots: int) -> None:
    load(place, 4, 4, 3, durability="fsync")
    place.log.append("loaded", [{"data": {"n": 12}, "tag": "t:0"}])
    for _ in range(snapshots):
        place.log.checkpoint()
    before = place.log.state("loaded")
    getattr(place, how)()
    assert data_of(place) == list(range(1, 13))
    after = place.log.state("loaded")
    assert (after.count, after.bytes, after.head_seq) == (before.count, before.bytes, 12)
    assert place.log.append("loaded", [{"data": {"n": 13}}]).first_seq == 13


def test_it_lives_like_any_other_topic(place: Place) -> None:
    load(place, 4, 4, 3, durability="fsync")
    assert place.log.delete("loaded", match="t:0").deleted == 3
    place.log.checkpoint()
    place.log.engine.relocate()
    place.cut()
    wanted = [n for n in range(1, 12) if n % 3]
    assert data_of(place) == wanted
    assert place.log.delete("loaded", match="t:1").deleted == 4
    place.log.delete("loaded", before_seq=100)
    place.log.engine.maintain()
    place.cut()
    assert place.log.state("loaded").head_seq == 11
    assert data_of(place) == []
    assert place.log.append("loaded", [{"data": {"n": 12}}]).first_seq == 12


def test_the_head_outlives_segments_that_were_dropped_before_a_snapshot(place: Place) -> None:
    load(place, 4, 4, durability="fsync")
    place.log.delete("loaded", before_seq=9)
    place.log.engine.maintain()
    place.cut()
    assert place.log.state("loaded").head_seq == 8


def test_a_cap_counts_from_the_beginning(place: Place) -> None:
    load(place, 4, 4, cap_records=3)
    page = place.log.diff("loaded")
    assert seqs_of(page) == [6, 7, 8]
    assert page.tombstone is not None


def test_verify_finds_nothing_wrong(place: Place) -> None:
    load(place, 4, 4, durability="fsync")
    other = begin(place, "other")
    stage(place.disk, other.upload, built(other.topic_id, 3))
    place.log.engine.abandon()
    report = verify(place.disk.kill(), cold=place.cold_disk and place.cold_disk.kill())
    assert report.healthy, report


def test_an_id_is_given_once(place: Place) -> None:
    first = begin(place)
    place.cut()
    second = begin(place)
    assert second.topic_id > first.topic_id
    assert place.log.create("plain").epoch > second.topic_id


def test_uploads_of_the_process_before_are_removed(place: Place) -> None:
    upload = begin(place)
    segments = stage(place.disk, upload.upload, built(upload.topic_id, 4))
    place.kill()
    assert place.disk.list(paths.UPLOADS_DIR) == []
    with pytest.raises(UploadNotFound):
        place.log.engine.attach(upload.upload, segments)
    assert place.log.topics() == []


def test_abandoned_uploads_go_by_word_and_by_age(place: Place) -> None:
    one, two = begin(place, "one"), begin(place, "two")
    stage(place.disk, one.upload, built(one.topic_id, 2))
    place.log.engine.abandon_upload(one.upload)
    assert place.disk.list(paths.UPLOADS_DIR) == [two.upload]
    place.clock.advance_ms(UPLOAD_MS - 1)
    place.log.engine.sweep()
    assert place.disk.list(paths.UPLOADS_DIR) == [two.upload]
    place.clock.advance_ms(1)
    place.log.engine.sweep()
    assert place.disk.list(paths.UPLOADS_DIR) == []
    with pytest.raises(UploadNotFound):
        place.log.engine.abandon_upload(two.upload)


def test_an_upload_belongs_to_whoever_began_it(place: Place) -> None:
    upload = place.log.engine.begin_upload("loaded", {}, owner="one")
    with pytest.raises(UploadNotFound):
        place.log.engine.abandon_upload(upload.upload, owner="two")
    with pytest.raises(UploadNotFound):
        place.log.engine.attach(upload.upload, [], owner="two")
    place.log.engine.abandon_upload(upload.upload, owner="one")


def test_uploads_are_bounded(place: Place) -> None:
    for i in range(MAX_UPLOADS):
        begin(place, f"t{i}")
    with pytest.raises(LimitReached):
        begin(place)


def test_a_topic_that_is_there_is_never_replaced(place: Place) -> None:
    upload = begin(place)
    place.log.create("loaded")
    with pytest.raises(TopicExistsIncompatible):
        begin(place)
    segments = stage(place.disk, upload.upload, built(upload.topic_id, 4))
    with pytest.raises(TopicExistsIncompatible):
        place.log.engine.attach(upload.upload, segments)
    place.log.drop("loaded")
    place.log.engine.attach(upload.upload, segments)
    assert data_of(place) == [1, 2, 3, 4]


@pytest.mark.parametrize("config", [{"type": "queue"}, {"durability": "ephemeral"}])
def test_only_logs_that_last_are_loaded(place: Place, config: dict[str, str]) -> None:
    with pytest.raises(RequestError):
        begin(place, **config)


def test_a_full_server_refuses_it(place: Place) -> None:
    place.stop(max_total_bytes=100)
    upload = begin(place)
    segments = stage(place.disk, upload.upload, built(upload.topic_id, 40))
    with pytest.raises(LimitReached):
        place.log.engine.attach(upload.upload, segments)


def broken(one: Built, how: str, topic_id: int) -> Built:
    """Make a segment wrong in one way, with hashes that are right."""
    first_seq, last_seq = one.segment.first_seq, one.segment.last_seq
    data, idx = bytearray(one.data), bytearray(one.idx)
    if how == "checksum":
        data[50] ^= 1
    elif how == "idx":
        idx[8] ^= 1
    elif how == "deleted":
        data[int.from_bytes(idx[4:8], "little") - 1] = 0xD5
        idx[16] |= 8
    elif how == "cut":
        data = data[:-1]
    elif how == "count":
        last_seq += 1
    elif how == "empty":
        data, idx = bytearray(b"x"), bytearray()
    else:
        _restamp(data, topic_id, how)
    return describe(data, idx, first_seq=first_seq, last_seq=last_seq)


def _restamp(data: bytearray, topic_id: int, how: str) -> None:
    """Change the first frame and give it a checksum that fits."""
    size, flags, _, seq, ts, node_len, tag_len, data_len = SEGMENT_HEADER.unpack_from(data)
    if how == "topic":
        topic_id += 1
    elif how == "flags":
        flags |= 64
    elif how == "json":
        data[SEGMENT_HEADER.size + tag_len + 4] = ord("]")
    elif how == "utf8":
        data[SEGMENT_HEADER.size] = 0xFF
    elif how == "meta":
        at = SEGMENT_HEADER.size + tag_len
        data[at : at + 4] = (2**31).to_bytes(4, "little")
    SEGMENT_HEADER.pack_into(data, 0, size, flags, topic_id, seq, ts, node_len, tag_len, data_len)
    checksum_at = SIZE_BYTES + size - 9
    U64.pack_into(data, checksum_at, xxh3_64(bytes(data[SIZE_BYTES:checksum_at])))


WRONGS = [
    "checksum", "idx", "deleted", "cut", "count", "empty", "topic", "flags", "json", "utf8", "meta",
]  # fmt: skip


@pytest.mark.parametrize("how", WRONGS)
def test_a_wrong_segment_is_refused_and_may_be_mended(place: Place, how: str) -> None:
    upload = begin(place)
    right = built(upload.topic_id, 3, 3)
    wrong = [right[0], broken(right[1], how, upload.topic_id)]
    segments = stage(place.disk, upload.upload, wrong)
    with pytest.raises(RequestError):
        place.log.engine.attach(upload.upload, segments)
    assert place.log.topics() == []
    segments = stage(place.disk, upload.upload, right)
    place.log.engine.attach(upload.upload, segments)
    assert data_of(place) == [1, 2, 3, 4, 5, 6]


def test_a_whole_segment_that_breaks_nothing_passes_the_breaking(place: Place) -> None:
    """The checksums that `broken` makes are right: what it breaks is what is refused."""
    upload = begin(place)
    same = broken(built(upload.topic_id, 3)[0], "nothing", upload.topic_id)
    place.log.engine.attach(upload.upload, stage(place.disk, upload.upload, [same]))
    assert data_of(place) == [1, 2, 3]


@pytest.mark.parametrize("keep", [[1], [0, 2], [1, 0], [0, 0], []])
def test_segments_must_follow_each_other_from_the_first_seq_on(
    place: Place, keep: list[int]
) -> None:
    upload = begin(place)
    segments = stage(place.disk, upload.upload, built(upload.topic_id, 3, 3, 3))
    with pytest.raises(RequestError):
        place.log.engine.attach(upload.upload, [segments[i] for i in keep])


def test_time_must_not_step_back(place: Place) -> None:
    upload = begin(place)
    records = [{"data": 1}]
    pair = [
        build_segment(records, topic_id=upload.topic_id, first_seq=1, ts=TS),
        build_segment(records, topic_id=upload.topic_id, first_seq=2, ts=TS - 1),
    ]
    with pytest.raises(RequestError, match="steps back"):
        place.log.engine.attach(upload.upload, stage(place.disk, upload.upload, pair))


@pytest.mark.parametrize("field", ["xxh3_data", "xxh3_idx"])
def test_another_file_than_announced_is_refused(place: Place, field: str) -> None:
    upload = begin(place)
    (segment,) = stage(place.disk, upload.upload, built(upload.topic_id, 3))
    fields = {name: getattr(segment, name) for name in segment.__struct_fields__}
    with pytest.raises(RequestError, match="XXH3"):
        place.log.engine.attach(upload.upload, [BuiltSegment(**fields | {field: "0" * 16})])


def test_a_missing_file_is_refused(place: Place) -> None:
    upload = begin(place)
    segments = stage(place.disk, upload.upload, built(upload.topic_id, 3))
    place.disk.unlink(f"{paths.upload_dir(upload.upload)}/{paths.segment_idx_name(1)}")
    with pytest.raises(RequestError, match="is not there"):
        place.log.engine.attach(upload.upload, segments)


def test_what_is_refused_can_be_mended_and_sent_again(place: Place) -> None:
    upload = begin(place, durability="fsync")
    good = built(upload.topic_id, 3, 3)
    segments = stage(place.disk, upload.upload, [good[0], good[1]._replace(data=good[0].data)])
    with pytest.raises(RequestError, match="XXH3"):
        place.log.engine.attach(upload.upload, segments)
    assert files_below(place, paths.TOPICS_DIR) == []
    place.log.engine.attach(upload.upload, stage(place.disk, upload.upload, good))
    place.cut()
    assert data_of(place) == [1, 2, 3, 4, 5, 6]


def test_a_builder_that_goes_on_while_its_files_are_judged_changes_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = begin(place, durability="fsync")
    whole = built(upload.topic_id, 3)
    segments = stage(place.disk, upload.upload, whole)
    other = build_segment([{"data": {"n": 9}}] * 3, topic_id=upload.topic_id, first_seq=1, ts=TS)

    def late(*given: Any, **named: Any) -> object:  # noqa: ANN401 - handed on
        found = check_segment(*given, **named)
        stage(place.disk, upload.upload, [other])
        return found

    monkeypatch.setattr("topics.engine.uploads.check_segment", late)
    place.log.engine.attach(upload.upload, segments)
    assert place.disk.list(paths.UPLOADS_DIR) == []
    place.cut()
    assert data_of(place) == [1, 2, 3]


def test_a_start_waits_for_no_builder_that_still_writes(place: Place) -> None:
    upload = begin(place)
    stage(place.disk, upload.upload, built(upload.topic_id, 3))
    place.disk = place.disk.kill()
    remove_dir, late = place.disk.remove_dir, [1, 2]

    def remove_late(path: str) -> None:
        if late and path == paths.upload_dir(upload.upload):
            place.disk.create(f"{path}/late-{late.pop()}").close()
        remove_dir(path)

    place.disk.remove_dir = remove_late  # type: ignore[method-assign] # the builder's last moments
    place.open()
    assert late == []
    assert place.disk.list(paths.UPLOADS_DIR) == []


def test_a_failed_sync_of_the_log_leaves_the_decision_to_the_next_start(place: Place) -> None:
    upload = begin(place)
    segments = stage(place.disk, upload.upload, built(upload.topic_id, 3))
    place.disk.arm(FaultPlan().fail(operation="sync_data", path="wal/*"))
    with pytest.raises(StorageError):
        place.log.engine.attach(upload.upload, segments)
    assert place.log.topics() == []
    place.cut()
    assert place.log.topics() in ([], ["loaded"])
    known = {place.log.state(name).epoch for name in place.log.topics()}
    assert {int(name, 16) for name in place.disk.list(paths.TOPICS_DIR)} == known


def test_a_write_to_the_log_that_is_torn_anywhere_leaves_no_half_topic() -> None:
    outcomes = set()
    for written_bytes in range(0, 700, 5):
        place = Place()
        upload = begin(place)
        segments = stage(place.disk, upload.upload, built(upload.topic_id, 3))
        plan = FaultPlan().write_short(written_bytes=written_bytes, path="wal/*")
        place.disk.arm(plan)
        try:
            place.log.engine.attach(upload.upload, segments)
        except StorageError:
            assert place.log.topics() == []
        place.kill()
        there = place.log.topics() == ["loaded"]
        assert not there or data_of(place) == [1, 2, 3]
        outcomes.add(there)
    assert outcomes == {True, False}
