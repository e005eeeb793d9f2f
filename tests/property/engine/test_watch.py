"""Whatever happens between a topic and its watcher, each seq is accounted for once, in order.

A model follows what was written, deleted and filtered. The watcher's client takes frames as slowly
as it likes, loses what was on its way when it disconnects, and resumes from the last id it got.
"""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crash.watch_reader import Counters, Line

from topics.config import ServerConfig
from topics.embedded import Log
from topics.engine.delivery.scheduler import Delivery
from topics.engine.diff import DiffRequest
from topics.engine.watch.event_id import decode_event_id, encode_event_id
from topics.engine.watch.feed import Feed, Options
from topics.engine.watch.frames import Sse
from topics.engine.watch.watcher import Watcher
from topics.limits import KIB
from topics.model.diff import parse_match
from topics.testing.hostile_disk import HostileDisk
from topics.testing.manual_clock import ManualClock

TOPICS = ("a", "b")
BUFFER_BYTES = 600
WANTED_TAG = "x"


class Client:
    """What a reader has understood: the seqs it got, the ranges it was told are lost."""

    def __init__(self) -> None:
        self.got: dict[str, list[int]] = {topic: [] for topic in TOPICS}
        self.lost: dict[str, list[tuple[int, int, str]]] = {topic: [] for topic in TOPICS}
        self.at = dict.fromkeys(TOPICS, 0)
        self.last_id = encode_event_id(self.at).decode()

    def take(self, frame: bytes) -> None:
        lines = dict(line.split(": ", 1) for line in frame.decode().strip().split("\n"))
        data: dict[str, Any] = msgspec.json.decode(lines["data"])
        topic, kind = data["topic"], lines["event"]
        cursors = decode_event_id(lines["id"])
        if kind == "record":
            assert data["from_seq"] >= self.at[topic]
            assert data["to_seq"] == cursors[topic]
            self.got[topic] += [record["$seq"] for record in data["records"]]
        elif kind == "tombstone":
            assert data["gap_from"] > self.at[topic]  # what was filtered on the way has no frame
            assert data["gap_to"] == cursors[topic]
            self.lost[topic].append((data["gap_from"], data["gap_to"], data["reason"]))
        else:
            assert kind == "caught-up"
        for name, seq in cursors.items():
            assert seq >= self.at[name], "a stream never goes back"
        self.at = cursors
        self.last_id = lines["id"]


class Run:
    """One log, one watcher, one client, and what the model knows."""

    def __init__(self, *, cap_records: int, ttl_ms: int, match: str | None, limit: int) -> None:
        self.clock = ManualClock()
        config = ServerConfig(wal_shards=1, wal_file_bytes=4 * KIB, segment_max_events=4)
        self.log = Log(config, disk=HostileDisk(), clock=self.clock, background=False)
        for topic in TOPICS:
            self.log.create(topic, cap_records=cap_records, ttl_ms=ttl_ms, durability="memory")
        engine = self.log.engine
        self.bugs: list[Exception] = []
        self.delivery = Delivery(
            engine.shards,
            clock=self.clock,
            wake=lambda _: None,
            on_bug=self.bugs.append,
        )
        self.feed = Feed(engine, self.delivery, counters=Counters(), read_cold=lambda *_: None)
        parsed = None if match is None else parse_match(match)
        self.watcher = Watcher(
            self.feed,
            Options(DiffRequest(limit=limit, match=parsed, max_batch_bytes=400)),
            frame_format=Sse(),
            buffer_bytes=BUFFER_BYTES,
            max_places=8,
        )
        for topic in TOPICS:
            self.watcher.add(engine.topic(topic), 0)
        self.match = match
        self.tags: dict[str, list[str]] = {topic: [] for topic in TOPICS}
        self.deleted: dict[str, set[int]] = {topic: set() for topic in TOPICS}
        self.client = Client()
        self.line = Line()
        self.watcher.open(self.line)

    # What may happen.

    def append(self, topic: str, tags: list[str]) -> None:
        self.log.append(topic, [{"data": "." * 20, "tag": tag} for tag in tags])
        self.tags[topic] += tags

    def delete(self, topic: str, *, back: int, match: str | None) -> None:
        """Delete what is `back` below the head, or has a tag."""
        head_seq = len(self.tags[topic])
        live = {
            record.seq
            for record in self.log.diff(
                topic, limit=1000, from_seq=self.earliest(topic) - 1
            ).records
        }
        if match is None:
            before = max(1, head_seq - back)
            self.log.delete(topic, before_seq=before)
            self.deleted[topic] |= {seq for seq in live if seq < before}
        else:
            self.log.delete(topic, match=match)
            self.deleted[topic] |= {seq for seq in live if self.tags[topic][seq - 1] == match}

    def wait(self, ms: int) -> None:
        self.clock.advance_ms(ms)
        self.log.engine.sweep()

    def checkpoint(self) -> None:
        self.log.engine.checkpoint()

    def serve(self) -> None:
        with self.feed.turn():
            self.delivery.drain()
            self.watcher.pump()

    def take(self, frames: int) -> None:
        for _ in range(min(frames, len(self.line.frames))):
            self.client.take(self.line.frames.popleft())

    def reconnect(self, frames: int) -> None:
        """Lose what is on its way but for a few frames, and come back with the last id."""
        self.take(frames)
        self.watcher.close()
        assert all(self.log.engine.topic(topic).watchers == 0 for topic in TOPICS)
        self.watcher.rewind(decode_event_id(self.client.last_id))
        self.line = Line()
        self.watcher.open(self.line)

    # What must hold.

    def earliest(self, topic: str) -> int:
        return self.log.state(topic).earliest_seq

    def finish(self) -> None:
        """Let everything arrive, then account for every seq."""
        for _ in range(500):
            self.serve()
            if not self.line.frames:
                break
            self.take(len(self.line.frames))
        assert self.bugs == []
        for topic in TOPICS:
            self.check(topic)
        self.log.close()

    def check(self, topic: str) -> None:
        head_seq = len(self.tags[topic])
        got, lost = self.client.got[topic], self.client.lost[topic]
        assert self.watcher.places[topic].seq == head_seq
        assert got == sorted(set(got)), "each once, in order"
        lost_seqs = [seq for first, last, _ in lost for seq in range(first, last + 1)]
        assert lost_seqs == sorted(set(lost_seqs)), "announced once, in order"
        assert not set(got) & set(lost_seqs)
        unseen = set(range(1, head_seq + 1)) - set(got) - set(lost_seqs)
        unwanted = {
            seq
            for seq in range(1, head_seq + 1)
            if self.match is not None and self.tags[topic][seq - 1] != self.match
        }
        assert unseen <= self.deleted[topic] | unwanted, "what is missing was removed or filtered"
        assert not set(got) & unwanted
        for _, last, _ in lost:
            assert last < self.earliest(topic), "only what is gone is announced as lost"


TAGS = st.lists(st.sampled_from([WANTED_TAG, "y"]), min_size=1, max_size=6)
NAMES = st.sampled_from(TOPICS)
STEPS = st.one_of(
    st.tuples(st.just("append"), NAMES, TAGS),
    st.tuples(st.just("append"), NAMES, TAGS),
    st.tuples(st.just("delete"), NAMES, st.integers(0, 5)),
    st.tuples(st.just("delete_tag"), NAMES, st.sampled_from([WANTED_TAG, "y"])),
    st.tuples(st.just("wait"), st.integers(1, 60)),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("serve")),
    st.tuples(st.just("serve")),
    st.tuples(st.just("take"), st.integers(0, 4)),
    st.tuples(st.just("reconnect"), st.integers(0, 3)),
)


@settings(max_examples=600, deadline=None)
@given(
    st.lists(STEPS, max_size=40),
    st.sampled_from([0, 3, 8]),
    st.sampled_from([0, 50]),
    st.sampled_from([None, WANTED_TAG]),
    st.sampled_from([1, 2, 256]),
)
def test_every_seq_is_delivered_announced_removed_or_filtered_exactly_once(
    steps: list[tuple[Any, ...]], cap_records: int, ttl_ms: int, match: str | None, limit: int
) -> None:
    run = Run(cap_records=cap_records, ttl_ms=ttl_ms, match=match, limit=limit)
    for word, *values in steps:
        if word == "delete":
            run.delete(values[0], back=values[1], match=None)
        elif word == "delete_tag":
            run.delete(values[0], back=0, match=values[1])
        else:
            getattr(run, word)(*values)
    run.finish()
