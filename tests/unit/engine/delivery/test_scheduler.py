"""Who hears of news, when, and in which order."""

import threading
from typing import Any

import pytest

from topics.config import ServerConfig
from topics.embedded import Log
from topics.engine.delivery.governor import DEPTH_FULL, LATENCY_FULL_MS
from topics.engine.delivery.scheduler import Delivery
from topics.engine.topics.topic import Topic
from topics.testing.hostile_disk import HostileDisk
from topics.testing.manual_clock import ManualClock


class Place:
    """A log with a delivery that a test drains by hand."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log = Log(
            ServerConfig(wal_shards=2), disk=HostileDisk(), clock=self.clock, background=False
        )
        self.wakes: list[float] = []
        self.bugs: list[Exception] = []
        engine = self.log.engine
        self.delivery = Delivery(
            engine.shards,
            clock=self.clock,
            wake=self.wakes.append,
            on_bug=self.bugs.append,
        )
        self.told: list[str] = []

    def topic(self, name: str, **config: Any) -> Topic:  # noqa: ANN401 - of a topic's config
        self.log.create(name, **config)
        return self.log.engine.topic(name)

    def listen(self, topic: Topic) -> None:
        self.delivery.listen(topic, self.hear)

    def hear(self, topic: Topic) -> None:
        self.told.append(topic.name)

    def write(self, name: str) -> None:
        self.log.append(name, [{"data": 1}])

    def press(self, level: float) -> None:
        """Bring the pressure to a level."""
        for _ in range(30):
            self.delivery.governor.sample(
                depth=round(level * DEPTH_FULL),
                latency_ms=5 + level * (LATENCY_FULL_MS - 5),
                busy_share=level,
            )


@pytest.fixture
def place() -> Place:
    return Place()


def test_a_topic_is_told_once_however_often_it_is_written(place: Place) -> None:
    place.listen(place.topic("t"))
    for _ in range(5):
        place.write("t")
    assert place.wakes == [0.0]
    place.delivery.drain()
    assert place.told == ["t"]
    place.write("t")
    assert place.wakes == [0.0, 0.0]
    place.delivery.drain()
    assert place.told == ["t", "t"]


def test_nobody_is_woken_for_a_topic_nobody_listens_to(place: Place) -> None:
    topic = place.topic("t")
    place.listen(topic)
    place.listen(topic)  # the same listener again
    assert topic.watchers == 1
    place.delivery.unlisten(topic, place.hear)
    place.delivery.unlisten(topic, place.hear)
    assert topic.watchers == 0
    place.write("t")
    assert place.wakes == []


def test_who_listens_waits_for_no_writer(place: Place) -> None:
    topic = place.topic("t")

    def listen_and_leave() -> None:
        place.listen(topic)
        place.delivery.unlisten(topic, place.hear)
        place.listen(topic)

    with place.log.engine.shard_of(topic).lock:  # as during a large write
        thread = threading.Thread(target=listen_and_leave, daemon=True)
        thread.start()
        thread.join(10)
        assert topic.watchers == 1
    place.write("t")
    place.delivery.drain()
    assert place.told == ["t"]


def test_the_urgent_are_told_first(place: Place) -> None:
    for name, priority in (("low", -5), ("high", 900), ("middle", 300)):
        place.listen(place.topic(name, priority=priority))
        place.write(name)
    place.delivery.drain()
    assert place.told == ["high", "middle", "low"]


def test_news_during_a_delivery_are_news_again(place: Place) -> None:
    topic = place.topic("t")

    def write_once(_: Topic) -> None:
        if len(place.told) == 1:
            place.write("t")

    place.listen(topic)
    place.delivery.listen(topic, write_once)
    place.write("t")
    place.delivery.drain()
    assert place.told == ["t"]
    place.delivery.drain()
    assert place.told == ["t", "t"]


def test_a_drain_stops_at_its_budget_and_asks_for_another(place: Place) -> None:
    for name in ("a", "b", "c"):
        topic = place.topic(name)
        place.listen(topic)
        place.delivery.listen(topic, lambda _: place.clock.advance_ms(4))
        place.write(name)
    del place.wakes[:]
    assert place.delivery.drain(0.005) == 2
    assert place.wakes == [0.0]
    assert place.delivery.drain(0.005) == 1
    assert place.told == ["a", "b", "c"]


def test_waiting_makes_urgent(place: Place) -> None:
    place.listen(place.topic("old", priority=-50))
    place.listen(place.topic("new", priority=700))
    place.write("old")
    place.clock.advance_ms(9_000)
    place.write("new")
    place.delivery.drain()
    assert place.told == ["old", "new"]


def test_under_pressure_deliveries_of_a_topic_wait_for_company(place: Place) -> None:
    place.listen(place.topic("t"))
    place.press(0.5)
    place.write("t")
    place.delivery.drain()
    assert place.told == ["t"]
    place.write("t")
    place.delivery.drain()
    assert place.told == ["t"]
    (delay_s,) = [wake for wake in place.wakes if wake]
    assert 0.002 <= delay_s <= 0.010
    place.clock.advance_ms(delay_s * 1000 + 0.1)
    place.delivery.drain()
    assert place.told == ["t", "t"]


def test_the_lowest_band_is_held_above_0_8_and_let_go_below_0_6(place: Place) -> None:
    place.listen(place.topic("low", priority=-900))
    place.listen(place.topic("high", priority=900))
    place.press(0.95)
    place.write("low")
    place.write("high")
    place.delivery.drain()
    assert place.told == ["high"]
    place.press(0.0)
    place.delivery.sample()
    place.delivery.drain()
    assert place.told == ["high", "low"]


def test_even_a_held_topic_is_told_when_it_has_waited_long_enough(place: Place) -> None:
    place.listen(place.topic("low", priority=-100))
    place.press(1.0)
    place.write("low")
    place.delivery.drain()
    assert place.told == []
    place.clock.advance_ms(1_500)
    place.press(1.0)
    place.delivery.sample()
    place.press(1.0)
    place.delivery.drain()
    assert place.told == ["low"]


def test_the_pressure_reaches_every_shard(place: Place) -> None:
    place.press(1.0)
    place.delivery.sample()
    pressures = {shard.commit.pressure for shard in place.log.engine.shards}
    assert pressures == {place.delivery.pressure}
    assert place.delivery.pressure > 0.4
    place.delivery.close()
    assert {shard.commit.pressure for shard in place.log.engine.shards} == {0.0}


def test_a_bug_of_one_listener_does_not_silence_the_next(place: Place) -> None:
    topic = place.topic("t")
    place.delivery.listen(topic, lambda topic: topic.runs[99])  # type: ignore[arg-type] # a bug
    place.listen(topic)
    place.write("t")
    place.delivery.drain()
    assert place.told == ["t"]
    assert [type(bug) for bug in place.bugs] == [IndexError]


def test_a_deleted_topic_is_news(place: Place) -> None:
    place.listen(place.topic("t"))
    place.log.drop("t")
    place.delivery.drain()
    assert place.told == ["t"]
