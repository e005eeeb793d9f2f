"""What a watcher does with cold segments, damage and a full sink."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.unit.engine.place import Place

from topics.engine.delivery.scheduler import Delivery
from topics.engine.diff import DiffRequest
from topics.engine.topics.topic import Topic
from topics.engine.watch.feed import ColdDone, Feed, Options
from topics.engine.watch.frames import Sse
from topics.engine.watch.watcher import Watcher
from topics.errors import CorruptData
from topics.model.watch import Window


class Sink:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.buffered_bytes = 0

    def write(self, data: bytes, /) -> None:
        self.frames.append(data)

    def has_room(self, limit_bytes: int, /) -> bool:
        return self.buffered_bytes <= limit_bytes

    def offer(self, data: bytes, limit_bytes: int, /) -> bool:
        if self.buffered_bytes > limit_bytes:
            return False
        self.write(data)
        return True

    def topic(self) -> str:
        """Return what the first frame is about."""
        return str(msgspec.json.decode(self.frames[0].split(b"data: ")[1])["topic"])

    def seen(self) -> list[Any]:
        """Return the seqs of records, and the name of every other event."""
        seen: list[Any] = []
        for frame in self.frames:
            lines = dict(line.split(": ", 1) for line in frame.decode().strip().split("\n"))
            data = msgspec.json.decode(lines["data"])
            records = data.get("records")
            seen += [lines["event"]] if records is None else [r["$seq"] for r in records]
        return seen


class Counters:
    """Counted for the metrics."""

    records_delivered = 0
    tombstones = 0


class Scene:
    """A log, one watcher, and cold reads that come when the test says."""

    def __init__(self) -> None:
        self.place = Place()
        engine = self.place.log.engine
        self.counters = Counters()
        self.cold: list[Callable[[], None]] = []
        delivery = Delivery(
            engine.shards,
            clock=self.place.clock,
            wake=lambda _: None,
            on_bug=self._raise,
        )
        self.delivery = delivery
        self.feed = Feed(engine, delivery, counters=self.counters, read_cold=self._read_cold)
        self.sink = Sink()

    def _raise(self, bug: Exception) -> None:
        raise bug

    def _read_cold(self, topic: Topic, request: DiffRequest, done: ColdDone) -> None:
        self.cold.append(lambda: done(self.place.log.engine.diff(topic, request)))

    def watcher(
        self,
        *topics: str,
        limit: int = 256,
        patterns: tuple[str, ...] = (),
        match: tuple[str, str] | None = None,
        sink: Sink | None = None,
        windows: dict[str, Window] | None = None,
    ) -> Watcher:
        watcher = Watcher(
            self.feed,
            Options(DiffRequest(limit=limit, match=match)),
            frame_format=Sse(),
            buffer_bytes=1000,
            max_places=8,
            patterns=patterns,
            windows=windows,
        )
        for name in topics:
            watcher.add(self.place.log.engine.topic(name), 0)
        watcher.open(sink or self.sink)
        return watcher

    def fill_cold(self, name: str = "t") -> None:
        self.place.fill(name, 8)
        engine = self.place.log.engine
        engine.checkpoint()
        assert engine.relocate() > 0


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_cold_segments_are_read_beside_and_sent_once(scene: Scene) -> None:
    scene.fill_cold()
    watcher = scene.watcher("t")
    watcher.pump()
    assert (len(scene.cold), scene.sink.frames) == (1, [])
    scene.place.fill("t", 1)
    scene.delivery.drain()  # news while the cold read is on its way
    watcher.pump()
    assert len(scene.cold) == 1
    while scene.cold:
        scene.cold.pop()()
        watcher.pump()
    assert scene.sink.seen() == [*range(1, 10), "caught-up"]
    assert scene.counters.records_delivered == 9


def test_a_cold_read_that_comes_after_the_end_is_dropped(scene: Scene) -> None:
    scene.fill_cold()
    watcher = scene.watcher("t")
    watcher.pump()
    watcher.close()
    watcher.open(scene.sink)
    watcher.pump()
    old, new = scene.cold
    old()
    assert scene.sink.frames == []
    new()
    assert scene.sink.seen()[0] == 1


def test_a_topic_made_again_during_a_cold_read_is_followed(scene: Scene) -> None:
    scene.fill_cold()
    watcher = scene.watcher("t")
    watcher.pump()
    old = scene.place.log.engine.topic("t")
    late = scene.cold.pop()
    scene.place.log.drop("t")
    scene.place.fill("t", 1)
    watcher.meet(scene.place.log.engine.topic("t"))
    late()
    watcher.pump()
    assert scene.sink.seen() == ["topic-deleted", 1, "caught-up"]
    assert old.watchers == 0
    watcher.close()
    assert scene.place.log.engine.topic("t").watchers == 0


def test_one_cold_topic_of_a_watcher_is_read_at_a_time_each_in_its_turn(scene: Scene) -> None:
    for name in ("a", "b", "c"):
        scene.fill_cold(name)
    watcher = scene.watcher("a", "b", "c", limit=4)
    watcher.pump()
    topics: list[str] = []
    while scene.cold:
        (answer,) = scene.cold
        scene.cold.clear()
        scene.sink.frames.clear()
        answer()
        topics.append(scene.sink.topic())
        watcher.pump()
    assert topics[:6] == ["a", "b", "c", "a", "b", "c"]


def test_what_a_cold_read_brings_to_a_full_sink_is_read_again_later(scene: Scene) -> None:
    scene.fill_cold()
    watcher = scene.watcher("t")
    watcher.pump()
    scene.sink.buffered_bytes = 2000
    scene.cold.pop()()
    assert (watcher.blocked, scene.sink.frames) == (True, [])
    scene.sink.buffered_bytes = 0
    while not scene.sink.frames or scene.cold:
        watcher.pump()
        scene.cold.pop()()
    watcher.pump()
    assert scene.sink.seen() == [*range(1, 9), "caught-up"]


def test_nothing_is_read_for_a_full_sink(scene: Scene) -> None:
    scene.place.fill("t", 3)
    watcher = scene.watcher("t")
    scene.sink.buffered_bytes = 2000
    watcher.pump()
    assert watcher.blocked
    assert (scene.feed.encodings, scene.sink.frames) == (0, [])
    scene.sink.buffered_bytes = 0
    watcher.pump()
    assert scene.sink.seen() == [1, 2, 3, "caught-up"]


def test_a_topic_that_cannot_be_read_is_left_out_and_the_others_go_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.place.fill("bad", 1)
    scene.place.fill("good", 1)
    watcher = scene.watcher("bad", "good")
    real = scene.feed.engine.read

    def read(topic: Topic, request: DiffRequest) -> Any:  # noqa: ANN401 - as the real one
        if topic.name == "bad":
            raise CorruptData("flipped")
        return real(topic, request)

    monkeypatch.setattr(scene.feed.engine, "read", read)
    watcher.pump()
    assert scene.sink.seen() == ["error", 1, "caught-up"]
    assert b'"topics":["bad"]' in scene.sink.frames[0]
    assert scene.place.log.engine.topic("bad").watchers == 0
    scene.place.fill("bad", 1)
    scene.delivery.drain()
    assert len(scene.sink.frames) == 3


def test_steps_are_shared_within_a_turn_and_not_beyond(scene: Scene) -> None:
    scene.place.fill("t", 3)
    watchers = [scene.watcher("t") for _ in range(5)]
    with scene.feed.turn():
        for watcher in watchers:
            watcher.pump()
    assert scene.feed.encodings == 1
    assert scene.sink.frames[0] is scene.sink.frames[2]  # the very bytes
    late = scene.watcher("t")
    scene.place.log.delete("t", before_seq=3)
    scene.sink.frames.clear()
    late.pump()
    assert scene.sink.seen() == [3, "caught-up"]


def test_topics_of_a_pattern_that_are_gone_make_room_for_new_ones(scene: Scene) -> None:
    watcher = scene.watcher(patterns=("job-",))
    for n in range(20):
        scene.place.fill(f"job-{n}", 1)
        watcher.meet(scene.place.log.engine.topic(f"job-{n}"))
        watcher.pump()
        scene.place.log.drop(f"job-{n}")
        scene.delivery.drain()
    assert scene.sink.seen() == [1, "caught-up", "topic-deleted"] * 20


def test_one_topic_too_many_is_told_once_and_within_the_buffer(scene: Scene) -> None:
    watcher = scene.watcher(patterns=("job-",))
    for n in range(8):
        scene.place.fill(f"job-{n}", 1)
        watcher.meet(scene.place.log.engine.topic(f"job-{n}"))
    scene.sink.buffered_bytes = 2000
    for n in range(8, 12):
        scene.place.fill(f"job-{n}", 1)
        watcher.meet(scene.place.log.engine.topic(f"job-{n}"))
        scene.sink.buffered_bytes = 2000 if n < 9 else 0
    assert scene.sink.seen() == ["error"]
    assert b'"topics":["job-10"]' in scene.sink.frames[0]


def test_a_watcher_waits_for_what_routers_bring_and_does_not_bring_it(scene: Scene) -> None:
    engine = scene.place.log.engine
    for name in ("from", "to"):
        scene.place.log.create(name)
    engine.put_router("r", {"source": "from", "dest": "to"})
    scene.place.fill("from", 1)
    watcher = scene.watcher("to")
    watcher.pump()
    assert engine.must_forward(engine.topic("to"))
    scene.place.log.diff("to")  # somebody else brings it
    scene.delivery.drain()
    assert scene.sink.seen() == ["caught-up", 1]


def test_watchers_at_one_place_are_sent_the_same_bytes_and_others_what_is_theirs(
    scene: Scene,
) -> None:
    scene.place.fill("t", 1)
    scene.place.fill("u", 1)
    sinks = {name: Sink() for name in ("first", "second", "tagged", "both", "closed", "full")}
    watchers = {
        name: scene.watcher(
            *(("t", "u") if name == "both" else ("t",)),
            match=("Eq", "a") if name == "tagged" else None,
            sink=sink,
        )
        for name, sink in sinks.items()
    }
    for name, watcher in watchers.items():
        watcher.pump()
        sinks[name].frames.clear()
    watchers["closed"].close()
    sinks["full"].buffered_bytes = 2000
    scene.counters.records_delivered = 0
    scene.place.fill("t", 1)
    with scene.feed.turn():
        scene.delivery.drain()
        scene.place.fill("t", 1, tag="a")
        scene.delivery.drain()
    seen = {name: sink.seen() for name, sink in sinks.items()}
    assert seen == {
        "first": [2, 3], "second": [2, 3], "tagged": [3], "both": [2, 3], "closed": [], "full": []
    }  # fmt: skip
    assert sinks["first"].frames[0] is sinks["second"].frames[0]
    assert sinks["first"].frames[0] != sinks["both"].frames[0]
    assert scene.counters.records_delivered == 7
    sinks["full"].buffered_bytes = 0
    watchers["full"].pump()
    assert sinks["full"].seen() == [2, 3]


def test_a_tombstone_on_the_way_is_announced_to_every_watcher(scene: Scene) -> None:
    scene.place.log.create("t", cap_records=2)
    sinks = [Sink(), Sink()]
    for sink in sinks:
        scene.watcher("t", sink=sink).pump()
    scene.place.fill("t", 1)
    with scene.feed.turn():
        scene.delivery.drain()
    scene.place.fill("t", 5)
    with scene.feed.turn():
        scene.delivery.drain()
    for sink in sinks:
        assert sink.seen() == ["caught-up", 1, "tombstone", 5, 6]
    assert scene.counters.tombstones == 2
