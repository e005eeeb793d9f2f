"""Who rides with others, and what makes him leave."""

import socket
from collections.abc import Callable, Iterator

import msgspec
import pytest
from tests.unit.engine.watch.test_watcher import Scene, Sink

from topics.engine.watch.convoy import Convoy, Seat
from topics.engine.watch.event_id import decode_event_id
from topics.engine.watch.watcher import Watcher


class Standing:
    """Where a watcher stands."""

    def __init__(self, seq: int) -> None:
        self.seq = seq


class DirectSink(Sink):
    """A sink with a socket, read by the test."""

    def __init__(self) -> None:
        super().__init__()
        self._mine, self._peer = socket.socketpair()
        self._mine.settimeout(0)
        self._peer.settimeout(0)
        self.seat: Seat | None = None
        self.sent_bytes = 0
        self.pushed: list[bytes] = []

    def write(self, data: bytes, /) -> None:
        if self.seat is not None:
            self.seat.leave()
        super().write(data)

    @property
    def descriptor(self) -> int:
        return self._mine.fileno()

    def find_way(self) -> "DirectSink":
        return self

    def pack(self, frame: bytes) -> bytes:
        return frame

    def push(self, packed: bytes) -> None:
        self.pushed.append(packed)

    def received(self) -> bytes:
        try:
            return self._peer.recv(1 << 20)
        except BlockingIOError:
            return b""

    def fill(self) -> None:
        try:
            while True:
                self._mine.send(b"x" * 10_000)
        except BlockingIOError:
            pass

    def close(self) -> None:
        self._mine.close()
        self._peer.close()


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def make_sink() -> Iterator[Callable[[], DirectSink]]:
    made: list[DirectSink] = []

    def make() -> DirectSink:
        made.append(DirectSink())
        return made[-1]

    yield make
    for sink in made:
        sink.close()


MakeSink = Callable[[], DirectSink]


def test_seats_are_given_on_and_the_last_one_to_leave_ends_it(make_sink: MakeSink) -> None:
    ended: list[bool] = []
    convoy = Convoy(5, on_empty=lambda: ended.append(True))
    sinks = [make_sink() for _ in range(3)]
    places = [Standing(5) for _ in sinks]
    seats = [convoy.join(place, sink) for place, sink in zip(places, sinks, strict=True)]
    seats[0].leave()
    seats[0].leave()
    convoy.send(b"frame", 6)
    assert [sink.received() for sink in sinks] == [b"", b"frame", b"frame"]
    assert [place.seq for place in places] == [5, 6, 6]
    assert [sink.sent_bytes for sink in sinks] == [0, 5, 5]
    assert ended == []
    seats[2].leave()
    seats[1].leave()
    assert ended == [True]


def test_who_does_not_take_all_of_it_leaves_with_the_rest(make_sink: MakeSink) -> None:
    convoy = Convoy(0, on_empty=lambda: None)
    sinks = [make_sink() for _ in range(3)]
    for sink in sinks:
        convoy.join(Standing(0), sink)
    sinks[1].fill()
    convoy.send(b"frame", 1)
    assert [sink.pushed for sink in sinks] == [[], [b"frame"], []]
    assert [sink.seat is None for sink in sinks] == [False, True, False]
    assert len(convoy) == 2
    convoy.send(b"next", 2)
    assert [sinks[0].received(), sinks[2].received()] == [b"framenext"] * 2
    assert sinks[1].pushed == [b"frame"]


# Watchers.


def waiting(scene: Scene, sinks: list[DirectSink], *topics: str) -> list[Watcher]:
    """Return watchers that have read all there is, and ride."""
    watchers = [scene.watcher(*topics, sink=sink) for sink in sinks]
    for watcher, sink in zip(watchers, sinks, strict=True):
        watcher.pump()
        watcher.join_convoy(sink.find_way)
    return watchers


def tell(scene: Scene) -> None:
    with scene.feed.turn():
        scene.delivery.drain()


def test_all_but_the_first_get_what_he_gets_with_one_call(
    scene: Scene, make_sink: MakeSink
) -> None:
    scene.place.fill("t", 1)
    sinks = [make_sink() for _ in range(4)]
    watchers = waiting(scene, sinks, "t")
    before = len(sinks[0].frames)
    scene.place.fill("t", 1)
    tell(scene)
    (frame,) = sinks[0].frames[before:]
    assert [sink.received() for sink in sinks] == [b"", frame, frame, frame]
    assert [watcher.places["t"].seq for watcher in watchers] == [2] * 4
    assert scene.counters.records_delivered == 8
    assert len(scene.feed.convoys) == 1
    for watcher in watchers:
        watcher.close()
    assert not scene.feed.convoys


def test_a_watcher_of_one_more_topic_rides_no_longer(scene: Scene, make_sink: MakeSink) -> None:
    for name in ("t", "u"):
        scene.place.fill(name, 1)
    sinks = [make_sink() for _ in range(2)]
    watchers = waiting(scene, sinks, "t")
    watchers[1].add(scene.place.log.engine.topic("u"), 0)
    scene.place.fill("t", 1)
    tell(scene)
    assert sinks[1].received() == b""
    ids = [line for line in sinks[1].frames[-1].decode().split("\n") if line.startswith("id: ")]
    assert decode_event_id(ids[0].removeprefix("id: ")) == {"t": 2, "u": 0}


def test_a_topic_that_goes_and_comes_back_is_told_to_riders(
    scene: Scene, make_sink: MakeSink
) -> None:
    scene.place.fill("t", 1)
    sinks = [make_sink() for _ in range(3)]
    watchers = waiting(scene, sinks, "t")
    topic = scene.place.log.engine.topic("t")
    scene.place.log.drop("t")
    for watcher in watchers:
        watcher.on_news(topic)
    assert not scene.feed.convoys
    scene.place.fill("t", 2)
    for watcher in watchers:
        watcher.meet(scene.place.log.engine.topic("t"))
        watcher.pump()
    for sink in sinks:
        assert sink.received() == b""
        assert sink.seen() == [1, "caught-up", "topic-deleted", 1, 2, "caught-up"]


@pytest.mark.parametrize("state", ["behind", "cold", "closed", "timed"])
def test_who_does_not_wait_does_not_ride(scene: Scene, make_sink: MakeSink, state: str) -> None:
    scene.place.fill("t", 1)
    sink = make_sink()
    watcher = scene.watcher("t", sink=sink)
    watcher.pump()
    if state == "behind":
        scene.place.fill("t", 1)
    elif state == "closed":
        watcher.close()
    elif state == "cold":
        watcher.close()
        scene.fill_cold()
        watcher.rewind({"t": 0})
        watcher.open(sink)
        watcher.pump()
        assert scene.cold
    else:
        watcher.places["t"].topic = None
    watcher.join_convoy(sink.find_way)
    assert sink.seat is None
    assert not scene.feed.convoys


def test_riders_whose_news_are_cold_already_get_them_once(
    scene: Scene, make_sink: MakeSink
) -> None:
    scene.place.fill("t", 1)
    sinks = [make_sink() for _ in range(3)]
    watchers = waiting(scene, sinks, "t")
    scene.fill_cold()  # before anybody was told
    tell(scene)
    assert len(scene.cold) == 3
    with scene.feed.turn():
        while scene.cold:
            scene.cold.pop()()
            for watcher in watchers:
                watcher.pump()
    for watcher, sink in zip(watchers, sinks, strict=True):
        assert sink.received() == b""
        assert sink.seen() == [1, "caught-up", *range(2, 10)]
        assert watcher.places["t"].seq == 9


def test_who_stands_elsewhere_waits_for_the_others_to_go_on(
    scene: Scene, make_sink: MakeSink
) -> None:
    """One that joined before the news were told must not be passed over, nor hold up anyone."""
    scene.place.fill("t", 1)
    sinks = [make_sink() for _ in range(3)]
    watchers = waiting(scene, sinks[:2], "t")
    scene.place.fill("t", 1)  # not told yet
    watchers.append(scene.watcher("t", sink=sinks[2]))
    watchers[2].pump()
    watchers[2].join_convoy(sinks[2].find_way)
    assert sinks[2].seat is None
    tell(scene)
    frames = [sink.frames[-1] if sink.frames else b"" for sink in sinks]
    assert sinks[1].received() == frames[0]
    assert [msgspec.json.decode(frame.split(b"data: ")[1])["topic"] for frame in frames] == [
        "t"
    ] * 3
    assert [watcher.places["t"].seq for watcher in watchers] == [2] * 3
