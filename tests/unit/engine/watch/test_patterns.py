"""Patterns over many topics: nobody looks at names that do not begin so, nor holds up a turn."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.engine.watch.test_watcher import Scene, Sink

from topics.engine.topics.names import Names
from topics.engine.watch.patterns import Newcomers, topics_of
from topics.errors import CorruptData

NAMES = st.lists(st.text(alphabet="ab.", min_size=1, max_size=4), max_size=8)


@pytest.fixture
def scene() -> Scene:
    return Scene()


class Engine:
    """A list of names, and how many of them were looked at."""

    def __init__(self, names: list[str]) -> None:
        self._names = Names(names)
        self.seen = 0

    def topics_starting(self, prefix: str, limit: int) -> list[Any]:
        found = self._names.starting(prefix, limit)
        self.seen += len(found)
        return [SimpleNamespace(name=name, parent=None) for name in found]


@given(NAMES, st.sets(st.text(alphabet="ab.", max_size=3)), st.integers(1, 9))
def test_topics_of_patterns_are_found_once_each_in_order(
    names: list[str], prefixes: set[str], limit: int
) -> None:
    names = sorted(set(names))
    wanted = [name for name in names if name.startswith(tuple(prefixes))][:limit]
    found = topics_of(Engine(names), prefixes, limit)  # type: ignore[arg-type] # what is asked of one
    assert [topic.name for topic in found] == wanted


def test_only_names_that_begin_so_are_looked_at_however_many_patterns_overlap() -> None:
    engine = Engine([f"t.{n:06}" for n in range(100_000)] + ["u.1", "u.2"])
    patterns = [f"u{'.' * (n % 2)}" for n in range(256)]
    assert len(list(topics_of(engine, patterns, 256))) == 2  # type: ignore[arg-type] # as above
    assert engine.seen == 2
    assert len(list(topics_of(engine, ["t.", "t", "u"], 256))) == 256  # type: ignore[arg-type] # as above
    assert engine.seen == 2 + 256


@given(st.lists(st.tuples(st.sampled_from(["add", "remove"]), st.sampled_from("abc")), max_size=20))
def test_names_stay_in_order_as_topics_come_and_go(steps: list[tuple[str, str]]) -> None:
    names, known = Names(["b.1", "a.9"]), {"b.1", "a.9"}
    for step, letter in steps:
        name = f"{letter}.5"
        if step == "add" and name not in known:
            names.add(name)
            known.add(name)
        elif step == "remove" and name in known:
            names.remove(name)
            known.discard(name)
    assert names.starting("", 100) == sorted(known)


def test_a_new_topic_is_told_to_whom_it_concerns_and_to_each_once() -> None:
    newcomers = Newcomers()
    everybody, some, named, parted = (object() for _ in range(4))
    waiting = {"*": everybody, "a.*": some, "a.b*": some, "a.b": named, "p": parted, "x*": named}
    for key, who in waiting.items():
        newcomers.wait(key, who)  # type: ignore[arg-type] # nobody meets
    topic = SimpleNamespace(name="a.b", parent=None)
    partition = SimpleNamespace(name="p.0", parent=SimpleNamespace(name="p"))

    def told(topic: object) -> set[object]:
        found = newcomers.of(topic)  # type: ignore[arg-type] # has a name and a parent
        assert len(found) == len(set(found))
        return set(found)

    assert told(topic) == {everybody, some, named}
    assert told(partition) == {everybody, parted}
    for key, who in [("*", everybody), ("*", everybody), ("a.*", some), ("x*", some)]:
        newcomers.leave(key, who)  # type: ignore[arg-type] # as above
    assert told(topic) == {some, named}
    newcomers.leave("a.b*", some)  # type: ignore[arg-type] # as above
    assert told(topic) == {named}


def test_a_pattern_is_opened_without_a_look_at_all_topics(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.1", "b.1", "b.2"):
        scene.place.fill(name, 1)
    engine = scene.place.log.engine
    monkeypatch.setattr(engine, "topics", lambda: pytest.fail("all topics were looked at"))
    watcher = scene.watcher(patterns=("b.",))
    assert [*watcher.places] == ["b.1", "b.2"]
    assert scene.feed.newcomers.of(engine.topic("b.1")) == [watcher]
    assert scene.feed.newcomers.of(engine.topic("a.1")) == []
    watcher.close()
    assert scene.feed.newcomers.of(engine.topic("b.1")) == []


@pytest.mark.parametrize("end", ["dropped", "unreadable"])
def test_a_name_that_ended_is_waited_for(scene: Scene, end: str) -> None:
    scene.place.fill("t", 1)
    watcher = scene.watcher("t")
    topic = scene.place.log.engine.topic("t")
    watcher.pump()
    assert scene.feed.newcomers.of(topic) == []
    if end == "unreadable":
        watcher._give_up(watcher.places["t"], CorruptData("it is damaged"))
    scene.place.log.drop("t")
    scene.delivery.drain()
    assert scene.feed.newcomers.of(topic) == [watcher]
    scene.place.fill("t", 1)
    scene.sink.frames.clear()
    watcher.meet(scene.place.log.engine.topic("t"))
    watcher.pump()
    assert [frame for frame in scene.sink.seen() if frame != "topic-deleted"] == [1, "caught-up"]
    assert scene.feed.newcomers.of(topic) == []


class SlowSink(Sink):
    """Takes as long for each frame as a turn has."""

    def __init__(self, take_time: Callable[[], None]) -> None:
        super().__init__()
        self._take_time = take_time

    def write(self, data: bytes, /) -> None:
        super().write(data)
        self._take_time()


def test_a_watch_of_many_topics_with_a_backlog_goes_on_in_other_turns(scene: Scene) -> None:
    names = [f"t{n}" for n in range(4)]
    for name in names:
        scene.place.fill(name, 4)
    sink = SlowSink(lambda: scene.place.clock.advance_ms(5))
    watcher = scene.watcher(*names, limit=2, sink=sink)
    due: list[object] = []
    watcher.on_behind = due.append
    turns = 0
    while watcher._behind:
        due.clear()
        before = len(sink.frames)
        with scene.feed.turn():
            watcher.pump()
        turns += 1
        assert len(sink.frames) - before <= 2, "one step, and that it has caught up"
        assert bool(due) == bool(watcher._behind)
    assert turns >= len(names) * 2
    assert sum(isinstance(seen, int) for seen in sink.seen()) == 16


def test_who_hears_of_news_late_in_a_turn_is_served_in_the_next(scene: Scene) -> None:
    scene.place.fill("t", 1)
    watcher = scene.watcher("t")
    watcher.pump()
    due: list[object] = []
    watcher.on_behind = due.append
    scene.sink.frames.clear()
    with scene.feed.turn():
        scene.place.clock.advance_ms(5)
        scene.place.fill("t", 1)
        scene.delivery.drain()
        assert scene.sink.frames == []
        assert due == [watcher]
    watcher.pump()
    assert scene.sink.seen() == [2]
