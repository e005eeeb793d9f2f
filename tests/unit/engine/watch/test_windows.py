"""What a watcher shows between two times, and how it ends."""

from typing import Any

import msgspec
import pytest
from tests.unit.engine.watch.test_watcher import Scene, Sink

from topics.engine.diff import DiffRequest
from topics.engine.request import build_write
from topics.engine.topics.topic import Topic
from topics.errors import CorruptData
from topics.model.watch import Window


@pytest.fixture
def scene() -> Scene:
    return Scene()


def fill(scene: Scene, count: int, topic: str = "t") -> None:
    """Append one record every ten milliseconds."""
    for _ in range(count):
        scene.place.fill(topic, 1)
        scene.place.clock.advance_ms(10)


def ends(sink: Sink) -> list[str]:
    """Return the topics whose window was said to be over."""
    bodies = [msgspec.json.decode(frame.split(b"data: ")[1]) for frame in sink.frames]
    return [body["topic"] for body in bodies if body.get("until_reached")]


def test_a_window_that_is_over_is_sent_and_ended(scene: Scene) -> None:
    start = scene.place.clock.now_ms()
    fill(scene, 6)
    watcher = scene.watcher("t", windows={"t": Window(start + 10, start + 40)})
    watcher.pump()
    assert scene.sink.seen() == [2, 3, 4, "caught-up"]
    assert ends(scene.sink) == ["t"]
    assert scene.place.log.engine.topic("t").watchers == 0
    fill(scene, 1)
    scene.delivery.drain()
    watcher.pump()
    assert len(scene.sink.frames) == 2


def test_the_first_record_behind_the_end_ends_a_live_window(scene: Scene) -> None:
    fill(scene, 1)
    until_ts = scene.place.clock.now_ms() + 15
    watcher = scene.watcher("t", windows={"t": Window(0, until_ts)})
    watcher.pump()
    for _ in range(3):
        fill(scene, 1)
        scene.delivery.drain()
    assert scene.sink.seen() == [1, "caught-up", 2, 3, "caught-up"]
    assert ends(scene.sink) == ["t"]


def test_the_clock_ends_a_window_where_no_record_comes(scene: Scene) -> None:
    fill(scene, 1)
    watcher = scene.watcher("t", windows={"t": Window(0, scene.place.clock.now_ms() + 5)})
    watcher.pump()
    assert not watcher.meet_end()
    scene.place.clock.advance_ms(5)
    assert watcher.meet_end()
    watcher.pump()
    assert scene.sink.seen() == [1, "caught-up", "caught-up"]
    assert ends(scene.sink) == ["t"]
    assert not watcher.meet_end()


def test_a_write_on_its_way_is_waited_for(scene: Scene) -> None:
    scene.place.log.create("t", durability="fsync")
    fill(scene, 1)
    watcher = scene.watcher("t", windows={"t": Window(0, scene.place.clock.now_ms() + 5)})
    watcher.pump()
    engine = scene.place.log.engine
    write = build_write([{"data": 2}], engine.config)
    shard, ticket = engine.submit_append(engine.topic("t"), write)
    scene.place.clock.advance_ms(5)
    assert watcher.meet_end()
    reads = scene.feed.encodings
    watcher.pump()
    assert scene.sink.seen() == [1, "caught-up"]
    assert scene.feed.encodings == reads + 1, "it looks once, and waits for news"
    shard.commit.commit(ticket)
    scene.delivery.drain()
    assert scene.sink.seen() == [1, "caught-up", 2, "caught-up"]
    assert ends(scene.sink) == ["t"]


def test_each_topic_has_its_own_window_and_a_pattern_gives_its_to_later_topics(
    scene: Scene,
) -> None:
    start = scene.place.clock.now_ms()
    fill(scene, 3, "a")
    windows = {"a": Window(0, start + 10), "log.*": Window(start + 40, start + 50)}
    watcher = scene.watcher("a", patterns=("log.",), windows=windows)
    fill(scene, 3, "log.x")
    watcher.meet(scene.place.log.engine.topic("log.x"))
    watcher.pump()
    assert scene.sink.seen() == [1, "caught-up", 2, "caught-up"]
    assert ends(scene.sink) == ["a", "log.x"]


def test_a_reader_who_comes_back_goes_on_from_where_it_was(scene: Scene) -> None:
    start = scene.place.clock.now_ms()
    fill(scene, 6)
    window = Window(start + 10, start + 50)
    watcher = scene.watcher("t", limit=2, windows={"t": window})
    watcher.pump()
    watcher.close()
    assert scene.sink.seen() == [2, 3, 4, 5, "caught-up"]
    again = Sink()
    watcher.rewind({"t": 3})
    watcher.open(again)
    watcher.pump()
    assert again.seen() == [4, 5, "caught-up"]
    assert ends(again) == ["t"]


def test_cold_segments_end_a_window_too(scene: Scene) -> None:
    start = scene.place.clock.now_ms()
    fill(scene, 8)
    scene.place.log.engine.checkpoint()
    assert scene.place.log.engine.relocate() > 0
    watcher = scene.watcher("t", windows={"t": Window(start, start + 30)})
    watcher.pump()
    scene.cold.pop()()
    watcher.pump()
    assert (scene.sink.seen(), scene.cold) == ([1, 2, 3, "caught-up"], [])


def test_a_watcher_with_an_end_is_not_sent_what_those_without_one_are(scene: Scene) -> None:
    fill(scene, 1)
    bounded = Sink()
    free = scene.watcher("t")
    ending = scene.watcher("t", sink=bounded, windows={"t": Window(0, 10**15)})
    free.pump()
    ending.pump()
    scene.place.clock.set_ms(10**15)
    fill(scene, 1)
    with scene.feed.turn():
        scene.delivery.drain()
    assert scene.sink.seen() == [1, "caught-up", 2]
    assert bounded.seen() == [1, "caught-up", "caught-up"]


def test_a_topic_that_cannot_be_read_is_told_of_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(scene, 1)
    watcher = scene.watcher("t", windows={"t": Window(0, scene.place.clock.now_ms() + 5)})
    watcher.pump()

    def read(topic: Topic, request: DiffRequest) -> Any:  # noqa: ANN401 - it never answers
        del topic, request
        raise CorruptData("flipped")

    monkeypatch.setattr(scene.feed.engine, "read", read)
    scene.place.clock.advance_ms(5)
    for _ in range(3):
        watcher.meet_end()
        watcher.pump()
    assert scene.sink.seen() == [1, "caught-up", "error"]
