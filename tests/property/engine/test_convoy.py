"""Many watchers over real sockets: with others or alone, each gets every seq once and in order.

Readers take as little as they like, so that some sockets are full in the middle of a frame.
"""

import socket
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crash.watch_reader import Counters

from topics.config import ServerConfig
from topics.embedded import Log
from topics.engine.delivery.scheduler import Delivery
from topics.engine.diff import DiffRequest
from topics.engine.watch.convoy import Seat
from topics.engine.watch.event_id import decode_event_id
from topics.engine.watch.feed import Feed, Options
from topics.engine.watch.frames import Sse
from topics.engine.watch.watcher import Watcher
from topics.limits import KIB
from topics.model.diff import parse_match
from topics.testing.hostile_disk import HostileDisk
from topics.testing.manual_clock import ManualClock

TOPICS = ("a", "b")
WATCHERS = 5
BUFFER_BYTES = 4000
WANTED_TAG = "x"
HEARTBEAT = b": beat\n\n"


class Line:
    """A sink on one end of a socket, with what it could not send yet; its reader on the other."""

    def __init__(self) -> None:
        self._mine, self._peer = socket.socketpair()
        for end in (self._mine, self._peer):
            end.settimeout(0)
        self._mine.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # as little as may be
        self._pending = bytearray()
        self._read = bytearray()
        self.seat: Seat | None = None
        self.sent_bytes = 0

    # The sink.

    def write(self, data: bytes, /) -> None:
        if self.seat is not None:
            self.seat.leave()
        self.sent_bytes += len(data)
        self.push(self.pack(data))

    def has_room(self, limit_bytes: int, /) -> bool:
        return self.buffered_bytes <= limit_bytes

    def offer(self, data: bytes, limit_bytes: int, /) -> bool:
        if self.buffered_bytes > limit_bytes:
            return False
        self.write(data)
        return True

    @property
    def buffered_bytes(self) -> int:
        return len(self._pending)

    # The way past it.

    @property
    def descriptor(self) -> int:
        return self._mine.fileno()

    def find_way(self) -> "Line | None":
        return None if self._pending else self

    def pack(self, frame: bytes) -> bytes:
        return len(frame).to_bytes(4, "big") + frame

    def push(self, packed: bytes) -> None:
        assert self.seat is None
        self._pending += packed
        self.flush()

    def flush(self) -> None:
        try:
            while self._pending:
                del self._pending[: self._mine.send(self._pending)]
        except BlockingIOError:
            pass

    # The reader.

    def take(self) -> list[bytes]:
        """Return the whole frames that have come."""
        try:
            while came := self._peer.recv(65536):
                self._read += came
        except BlockingIOError:
            pass
        frames = []
        while len(self._read) >= 4:
            size = 4 + int.from_bytes(self._read[:4], "big")
            if len(self._read) < size:
                break
            frames.append(bytes(self._read[4:size]))
            del self._read[:size]
        return frames

    def close(self) -> None:
        if self.seat is not None:
            self.seat.leave()
        self._mine.close()
        self._peer.close()


class Reader:
    """One watcher, its line, and what its client has understood."""

    def __init__(self, feed: Feed, *, match: str | None) -> None:
        parsed = None if match is None else parse_match(match)
        self.match = match
        self.watcher = Watcher(
            feed,
            Options(DiffRequest(limit=4, match=parsed)),
            frame_format=Sse(),
            buffer_bytes=BUFFER_BYTES,
            max_places=8,
        )
        self.watcher.add(feed.engine.topic("a"), 0)
        self.got: dict[str, list[int]] = {topic: [] for topic in TOPICS}
        self.records = 0
        self._at: dict[str, int] = {}
        self._last_id = ""
        self.line = Line()
        self.watcher.open(self.line)

    def rest(self) -> None:
        self.watcher.join_convoy(self.line.find_way)

    def beat(self) -> None:
        self.line.write(HEARTBEAT)

    def take(self) -> int:
        frames = self.line.take()
        for frame in frames:
            if frame != HEARTBEAT:
                self._understand(frame)
        return len(frames)

    def _understand(self, frame: bytes) -> None:
        lines = dict(line.split(": ", 1) for line in frame.decode().strip().split("\n"))
        data: dict[str, Any] = msgspec.json.decode(lines["data"])
        self._last_id = lines["id"]
        cursors = decode_event_id(self._last_id)
        assert all(seq >= self._at.get(name, 0) for name, seq in cursors.items()), "went back"
        self._at |= cursors
        if lines["event"] == "record":
            assert data["to_seq"] == cursors[data["topic"]]
            self.got[data["topic"]] += [record["$seq"] for record in data["records"]]
            self.records += len(data["records"])

    def reconnect(self) -> None:
        self.watcher.close()
        self.line.close()
        start = dict.fromkeys(self.watcher.places, 0)
        self.watcher.rewind(decode_event_id(self._last_id) if self._last_id else start)
        self.line = Line()
        self.watcher.open(self.line)


class Run:
    """One log and its watchers; the first of them are of one kind."""

    def __init__(self) -> None:
        config = ServerConfig(wal_shards=1, wal_file_bytes=64 * KIB)
        self.log = Log(config, disk=HostileDisk(), clock=ManualClock(), background=False)
        for topic in TOPICS:
            self.log.create(topic, durability="memory")
        engine = self.log.engine
        self.bugs: list[Exception] = []
        self.delivery = Delivery(
            engine.shards,
            clock=ManualClock(),
            wake=lambda _: None,
            on_bug=self.bugs.append,
        )
        self.counters = Counters()
        self.feed = Feed(engine, self.delivery, counters=self.counters, read_cold=lambda *_: None)
        matches = [None] * (WATCHERS - 2) + [WANTED_TAG] * 2
        self.readers = [Reader(self.feed, match=match) for match in matches]
        self.tags: dict[str, list[str]] = {topic: [] for topic in TOPICS}
        self.reconnected = False
        self.followed: set[int] = set()
        self.deleted: dict[str, set[int]] = {topic: set() for topic in TOPICS}

    def append(self, topic: str, tags: list[str], size: int) -> None:
        self.log.append(topic, [{"data": "." * size, "tag": tag} for tag in tags])
        self.tags[topic] += tags

    def delete(self, topic: str, tag: str) -> None:
        self.log.delete(topic, match=tag)
        self.deleted[topic] |= {n + 1 for n, one in enumerate(self.tags[topic]) if one == tag}

    def serve(self) -> None:
        with self.feed.turn():
            self.delivery.drain()
            for reader in self.readers:
                reader.watcher.pump()

    def rest(self, which: list[int]) -> None:
        for number in which:
            self.readers[number].rest()

    def beat(self, which: int) -> None:
        self.readers[which].beat()

    def take(self, which: int) -> None:
        self.readers[which].take()
        self.readers[which].line.flush()

    def follow(self, which: int) -> None:
        """Watch one more topic, once: it begins at 0 each time."""
        watcher = self.readers[which].watcher
        if which not in self.followed:
            self.followed.add(which)
            watcher.add(self.log.engine.topic("b"), 0, asked=False)  # as one that a pattern met
            watcher.meet(self.log.engine.topic("b"))

    def unfollow(self, which: int) -> None:
        self.readers[which].watcher.drop("b")

    def reconnect(self, which: int) -> None:
        self.reconnected = True
        self.readers[which].reconnect()

    def finish(self) -> None:
        for _ in range(200):
            self.serve()
            if not sum(reader.take() for reader in self.readers):
                break
            for reader in self.readers:
                reader.line.flush()
        assert self.bugs == []
        for reader in self.readers:
            self.check(reader)
        if not self.reconnected:  # else some frames were lost on their way
            assert self.counters.records_delivered == sum(r.records for r in self.readers)
        for reader in self.readers:
            reader.watcher.close()
            reader.line.close()
        assert not self.feed.convoys
        self.log.close()

    def check(self, reader: Reader) -> None:
        for topic in reader.watcher.places:
            head_seq = len(self.tags[topic])
            got = reader.got[topic]
            assert got == sorted(set(got)), "each once, in order"
            wanted = {
                seq
                for seq in range(1, head_seq + 1)
                if reader.match in (None, self.tags[topic][seq - 1])
            }
            assert set(got) <= wanted
            assert wanted - set(got) <= self.deleted[topic], "what is missing was removed"
            assert reader.watcher.places[topic].seq == head_seq


NUMBERS = st.integers(0, WATCHERS - 1)
TAGS = st.lists(st.sampled_from([WANTED_TAG, "y"]), min_size=1, max_size=5)
APPEND = st.tuples(
    st.just("append"), st.sampled_from(["a", "a", "b"]), TAGS, st.sampled_from([9, 900])
)
REST = st.tuples(st.just("rest"), st.lists(NUMBERS, max_size=WATCHERS))
STEPS = st.one_of(
    APPEND,
    APPEND,
    st.just(("serve",)),
    st.just(("serve",)),
    REST,
    st.just(("rest", list(range(WATCHERS)))),
    st.tuples(st.just("delete"), st.sampled_from(TOPICS), st.sampled_from([WANTED_TAG, "y"])),
    st.tuples(st.just("beat"), NUMBERS),
    st.tuples(st.just("take"), NUMBERS),
    st.tuples(st.just("follow"), NUMBERS),
    st.tuples(st.just("unfollow"), NUMBERS),
    st.tuples(st.just("reconnect"), NUMBERS),
)


@settings(max_examples=500, deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_every_watcher_gets_every_seq_once_with_others_or_alone(
    steps: list[tuple[Any, ...]],
) -> None:
    run = Run()
    for word, *values in steps:
        getattr(run, word)(*values)
    run.finish()
