"""A range as raw frames: the same records and gaps as a diff, and never a torn part."""

from collections.abc import Iterator

import pytest
from tests.unit.engine.place import Place, gap_of, seqs_of

from topics.engine.frames import FramesRequest, reaches_cold
from topics.errors import CorruptData, RequestError, TopicRecreated
from topics.kernel import FLAG_DELETED, SEGMENT_LAYOUT, WAL_LAYOUT, project_records
from topics.limits import KIB
from topics.model.diff import Page
from topics.model.frames import IDX_ENTRY, RangePage, decode_range, encode_range
from topics.storage.segments.rewrite import Rewrite
from topics.storage.segments.segment import Segment, View

LAYOUTS = {"wal": WAL_LAYOUT, "segment": SEGMENT_LAYOUT}


@pytest.fixture
def place() -> Place:
    return Place()


def read(place: Place, **fields: int) -> RangePage:
    engine = place.log.engine
    page = engine.read_frames(engine.topic("t"), FramesRequest(**fields))
    return decode_range(b"".join(encode_range(page)))


def gap(page: RangePage) -> tuple[int, int, str] | None:
    found = page.head.tombstone
    return None if found is None else (found.gap_from, found.gap_to, found.reason)


def live_seqs(page: RangePage) -> list[int]:
    """Decode as a reader does: skip what is deleted, check every other frame."""
    found = []
    for part in page.parts:
        flags = [entry[3] for entry in IDX_ENTRY.iter_unpack(part.idx)]
        seqs = [part.head.first_seq + i for i, f in enumerate(flags) if not f & FLAG_DELETED]
        projected = project_records(
            part.data,
            part.idx,
            base=part.head.base,
            layout=LAYOUTS[part.head.layout],
            first_seq=part.head.first_seq,
            start=0,
            stop=part.head.count,
            limit=10**6,
            budget=10**9,
            skip_nodes=(),
            match=None,
            include_meta=True,
            include_tags=True,
            include_data=True,
            verify=True,
        )
        assert projected.count == len(seqs)
        found += seqs
    return found


def pages(place: Place, **fields: int) -> Iterator[RangePage]:
    """Read on until the head, as a reader does."""
    cursor = fields.pop("from_seq", 0)
    while True:
        page = read(place, from_seq=cursor, **fields)
        yield page
        if page.head.next_from_seq == cursor:
            return
        cursor = page.head.next_from_seq


def mixed(place: Place) -> None:
    """Make cold, hot, active and tail records, some of them deleted."""
    place.log.create("t", durability="fsync")
    place.stop(hot_retain_segments=1)
    for i in range(14):
        place.log.append("t", [{"data": "x" * (i * 7), "tag": f"n:{i}"}])
    place.log.engine.checkpoint()
    place.log.engine.relocate()
    for i in (1, 5, 9, 13):
        place.log.delete("t", match=f"n:{i}")
    place.log.append("t", [{"data": i, "tag": f"n:{i}"} for i in range(14, 20)])
    place.log.delete("t", match="n:16")


def diff(place: Place, from_seq: int = 0) -> Page:
    return place.log.diff("t", from_seq=from_seq, limit=1000)


def test_frames_are_those_of_a_diff_over_all_tiers(place: Place) -> None:
    mixed(place)
    page = read(place)
    assert {part.head.layout for part in page.parts} == {"wal", "segment"}
    assert live_seqs(page) == seqs_of(diff(place))
    assert page.head.next_from_seq == page.head.head_seq == 20
    topic = place.log.engine.topic("t")
    assert reaches_cold(topic, 0)
    assert not reaches_cold(topic, 8)


@pytest.mark.parametrize("max_bytes", [1, 100, 300, 1000])
def test_pages_of_any_size_hold_every_record_once(place: Place, max_bytes: int) -> None:
    mixed(place)
    found = []
    for page in pages(place, max_bytes=max_bytes):
        size = sum(part.head.data_bytes for part in page.parts)
        assert size <= max_bytes or sum(part.head.count for part in page.parts) == 1
        found += live_seqs(page)
    assert found == seqs_of(diff(place))


@pytest.mark.parametrize(
    ("from_seq", "to_seq"), [(0, 1), (3, 9), (8, 8), (12, 17), (19, 99), (9, 4)]
)
def test_a_range_ends_where_it_was_told(place: Place, from_seq: int, to_seq: int) -> None:
    mixed(place)
    page = read(place, from_seq=from_seq, to_seq=to_seq)
    wanted = [seq for seq in seqs_of(diff(place)) if from_seq < seq <= to_seq]
    assert live_seqs(page) == wanted
    assert page.head.next_from_seq == max(from_seq, min(to_seq, 20))


def test_rewritten_segments_are_read_with_their_empty_entries(place: Place) -> None:
    place.stop(hot_retain_segments=100)
    place.log.create("t", durability="fsync")
    for i in range(8):
        place.log.append("t", [{"data": i, "tag": f"n:{i}"}])
    place.log.engine.checkpoint()
    for i in (0, 1, 2):
        place.log.delete("t", match=f"n:{i}")
    place.log.engine.maintain()
    assert live_seqs(read(place)) == [4, 5, 6, 7, 8]
    assert live_seqs(read(place, from_seq=1, to_seq=2)) == []


def test_loss_to_a_cap_comes_first_and_once(place: Place) -> None:
    place.log.create("t", cap_records=5)
    place.fill("t", 12)
    page = read(place)
    assert gap(page) == gap_of(diff(place)) == (1, 7, "cap")
    assert live_seqs(page) == [8, 9, 10, 11, 12]
    assert gap(read(place, from_seq=7)) is None


def test_neighbouring_ranges_announce_a_loss_once_in_all(place: Place) -> None:
    place.log.create("t", cap_records=5)
    place.fill("t", 12)
    gaps = [gap(read(place, from_seq=a, to_seq=b)) for a, b in [(0, 3), (3, 6), (6, 9), (9, 12)]]
    assert gaps == [(1, 3, "cap"), (4, 6, "cap"), (7, 7, "cap"), None]


def test_a_hole_ends_a_page_and_starts_the_next(place: Place) -> None:
    place.log.create("t", durability="fsync")
    place.fill("t", 2)
    place.log.create("t", durability="disk")
    place.fill("t", 2)
    place.cut()
    place.fill("t", 2)
    found, gaps = [], []
    for page in pages(place):
        found += live_seqs(page)
        gaps.append(gap(page))
    wanted, cursor = [], 0
    while cursor < place.log.state("t").head_seq:
        expected = diff(place, cursor)
        wanted += seqs_of(expected)
        cursor = expected.next_from_seq
    assert found == wanted
    assert len([told for told in gaps if told]) == 1


def test_a_cursor_beyond_the_head_is_told_apart_from_one_of_another_life(place: Place) -> None:
    place.log.create("t")
    place.fill("t", 3)
    page = read(place, from_seq=9)
    assert gap(page) == gap_of(diff(place, 9)) == (4, 9, "beyond_head")
    place.log.drop("t")
    place.fill("t", 2)
    assert gap(read(place, from_seq=3)) == gap_of(diff(place, 3)) == (1, 2, "recreated")
    epoch = place.log.state("t").epoch
    assert gap(read(place, from_seq=3, epoch=epoch)) == (3, 3, "beyond_head"), "the life is known"


def test_another_epoch_is_refused(place: Place) -> None:
    place.log.create("t")
    place.fill("t", 1)
    epoch = place.log.state("t").epoch
    assert live_seqs(read(place, epoch=epoch)) == [1]
    place.log.drop("t")
    place.log.create("t")
    with pytest.raises(TopicRecreated) as refusal:
        read(place, epoch=epoch)
    assert refusal.value.detail == {"epoch": epoch + 1, "reason": "recreated"}


def test_nonsense_is_refused() -> None:
    with pytest.raises(RequestError):
        FramesRequest(from_seq=-1)
    with pytest.raises(RequestError):
        FramesRequest(max_bytes=0)


def test_a_rewrite_in_the_middle_of_a_read_does_not_mix_files(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.stop(hot_retain_segments=100)
    place.log.create("t", durability="fsync")
    for i in range(8):
        place.log.append("t", [{"data": "x" * i, "tag": f"n:{i}"}])
    place.log.engine.checkpoint()
    for i in (0, 1, 2):
        place.log.delete("t", match=f"n:{i}")
    view = Segment.view
    rewrites: list[Segment] = []

    def torn_view(segment: Segment, start: int, stop: int, *, max_bytes: int | None = None) -> View:
        """Take the old entries and, the first time, the frames that a rewrite left."""
        found = view(segment, start, stop, max_bytes=max_bytes)
        if not rewrites:
            rewrites.append(segment)
            place.log.engine.maintain()
            return View(bytes(found.idx), bytes(len(found.buffer)), found.base)
        return found

    monkeypatch.setattr(Segment, "view", torn_view)
    monkeypatch.setattr(Rewrite, "prepare", _prepare_with(view))
    page = read(place)
    assert rewrites
    assert live_seqs(page) == [4, 5, 6, 7, 8]


def _prepare_with(view: object) -> object:
    prepare = Rewrite.prepare

    def prepare_untorn(rewrite: Rewrite) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Segment, "view", view)
            prepare(rewrite)

    return prepare_untorn


def test_a_tail_that_a_checkpoint_takes_is_read_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.stop(wal_file_bytes=256 * KIB)
    place.log.create("t", durability="fsync")
    place.log.append("t", [{"data": "x" * 1000} for _ in range(80)])
    topic = place.log.engine.topic("t")
    chunk = topic.chunks()[0]
    looked: list[int] = []
    stretches = type(topic).stretches_from

    def checkpoint_in_between(self: object, seq: int) -> Iterator[tuple[object, int, int]]:
        for stretch in list(stretches(self, seq)):  # type: ignore[arg-type]  # the topic
            if not looked:
                looked.append(seq)
                place.log.engine.checkpoint()
                chunk.frames = bytes(chunk.size)
            yield stretch

    monkeypatch.setattr(type(topic), "stretches_from", checkpoint_in_between)
    page = read(place)
    assert looked
    assert len(live_seqs(page)) == 80
    assert {part.head.layout for part in page.parts} == {"segment"}


def test_a_file_that_is_cut_short_is_damage(place: Place) -> None:
    place.log.create("t", durability="fsync")
    place.stop(hot_retain_segments=100)
    place.fill("t", 8)
    place.log.engine.checkpoint()
    segment = place.log.engine.topic("t").segments()[0]
    segment.release()
    file = place.disk.open(segment.data_path)
    file.truncate(segment.data_bytes - 1)
    with pytest.raises(CorruptData) as damage:
        read(place)
    assert damage.value.segment == segment.data_path
