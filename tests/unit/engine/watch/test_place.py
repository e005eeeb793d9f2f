"""Where a watcher stands, and how far an id takes it back."""

from topics.engine.topics.topic import Topic
from topics.engine.watch.event_id import decode_event_id
from topics.engine.watch.place import GONE, Place, event_id_of
from topics.model.topic_config import TopicConfig
from topics.storage.disk.open_maps import OpenMaps
from topics.storage.disk.ram_disk import RamDisk
from topics.storage.segments.tag_runs import TagRuns


def topic_of(life: int) -> Topic:
    tags = TagRuns(RamDisk(), OpenMaps(), life)
    return Topic(life, "t", config=TopicConfig(), created_ts=0, tags=tags)


def place_at(seq: int, *, asked: bool = True) -> Place:
    return Place("t", topic_of(5), seq, asked=asked, by_pattern=not asked)


def test_an_id_rewinds_and_never_skips() -> None:
    place = place_at(7)
    place.rewind({"t": 9})
    assert place.seq == 7
    place.rewind({"t": 3})
    assert place.seq == 3


def test_an_id_older_than_the_place_rewinds_it_to_its_start() -> None:
    asked, found = place_at(7), place_at(7, asked=False)
    for place in (asked, found):
        place.rewind({"other": 1})
    assert (asked.seq, found.seq) == (7, 0)


def test_ids_tell_the_lives_of_a_name_apart() -> None:
    place = place_at(7)
    assert decode_event_id(event_id_of([place]).decode()) == {"t": 7}
    place.end()
    gone = decode_event_id(event_id_of([place]).decode())
    assert gone == {"t": 0, "@t": GONE}
    place.begin(topic_of(6))
    place.seq = 4
    assert decode_event_id(event_id_of([place]).decode()) == {"t": 4, "@t": 6}

    place.rewind({"t": 2, "@t": 6})
    assert (place.life, place.seq) == (6, 2)
    place.rewind(gone)
    assert (place.life, place.seq) == (6, 0)
    place.rewind({"t": 3})  # of the first life
    assert (place.life, place.seq) == (5, 3)


def test_an_id_of_a_life_to_come_changes_nothing() -> None:
    place = place_at(7)
    place.rewind({"t": 1, "@t": 99})
    assert (place.life, place.seq) == (5, 7)
