"""Topics and their watchers on hostile disks, and what must be true of the streams after a crash.

Every record has a number of its own, in its data. Two readers watch: one takes each frame at once,
as early as between any two calls of the disk; the other one takes them late. Both remember what
they were given and the id of their last frame, as browsers do. After a crash both come back with
that id, by the way that the server takes (`restore_watcher`). Then the oracles are plain: each seq
up to the head was given once, before the crash or after it, or announced as lost, or deleted.
"""

from collections import Counter, deque
from copy import deepcopy
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec
from tests.crash.watch_reader import Counters, Reader, Stream, View, require

from topics.api.auth import parse_keys
from topics.api.saved_watches import SavedWatch, SavedWatches, save_places
from topics.api.sse import SSE
from topics.api.watch import build_watcher, restore_watcher
from topics.config import ServerConfig
from topics.embedded import Log
from topics.engine.delivery.scheduler import Delivery
from topics.engine.diff import DiffRequest
from topics.engine.topics.topic import Topic
from topics.engine.watch.event_id import decode_event_id
from topics.engine.watch.feed import ColdDone, Feed
from topics.engine.watch.watcher import Watcher
from topics.errors import TopicsError
from topics.model.watch import WatchBody, WatchStart
from topics.testing.crash_recorder import Disks, Hooks, RecordingDisk
from topics.testing.crash_sweep import KILL
from topics.testing.hostile_disk import HostileDisk
from topics.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from topics.api.app import App

EVICTED = frozenset({"cap", "ttl", "mixed", "from_seq_too_old"})
CRASHED = "crash"
_DECODE_BODY = msgspec.json.Decoder(WatchBody).decode


# What was promised.


@dataclass
class Life:
    """One life of a topic, as its writers were told of it."""

    id: int
    is_sure: bool
    """Of class fsync."""
    cap: int
    acked: dict[int, int] = field(default_factory=dict)
    """Seq → number."""
    durable: set[int] = field(default_factory=set)
    """The seqs of it that no power cut may take."""
    asked: set[int] = field(default_factory=set)
    """All numbers that were ever submitted."""
    gone: set[int] = field(default_factory=set)
    """Deleted numbers; those of a delete on its way are in `going`."""
    going: set[int] = field(default_factory=set)
    crashed: set[int] = field(default_factory=set)
    """Seqs that an earlier crash took: nobody will ever have them."""
    dropping: bool = False
    dropped: bool = False

    @property
    def removed(self) -> set[int]:
        """The seqs of which nobody needs to hear."""
        hit = self.gone | self.going
        return {seq for seq, n in self.acked.items() if n in hit}

    def ack(self, seq: int, n: int) -> None:
        require(self.acked.setdefault(seq, n) == n, f"seq {seq} was {self.acked[seq]}, is {n}")
        if self.is_sure:
            self.durable.add(seq)


@dataclass
class Known:
    """All that was said by now."""

    lives: dict[str, list[Life]] = field(default_factory=dict)
    tags: dict[int, str] = field(default_factory=dict)
    creating: str | None = None
    next_n: int = 1
    kept: set[str] = field(default_factory=set)
    """Watches that a crash must leave."""
    unsure: set[str] = field(default_factory=set)
    """Those whose beginning or end is being written."""


class Cut(NamedTuple):
    """The disks before one call, what was promised, and what had arrived by then."""

    disks: Disks
    known: Known
    readers: dict[str, Reader]
    now_ms: int


class WatchRun:
    """One log with streams; each word is noted before it is said and after its answer."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        disks: Disks | None = None,
        known: Known | None = None,
        now_ms: int = 1_700_000_000_000,
    ) -> None:
        self.config = config
        self.clock = ManualClock(now_ms)
        self.disks = disks or Disks(HostileDisk(), HostileDisk())
        self.known = known or Known()
        self.cuts: list[Cut] = []
        self.records = False
        """Cut points are kept, and the streams served between the calls of the disk."""
        self.met: Counter[str] = Counter()
        """How often the checks have met what they are for."""
        self.streams: dict[str, Stream] = {}
        self._bodies: dict[str, bytes] = {}
        """By stream: what was asked for."""
        self._due: dict[Watcher, None] = {}
        self._fetches: deque[tuple[Topic, DiffRequest, ColdDone]] = deque()
        self._met: deque[Topic] = deque()
        self._bugs: list[Exception] = []
        self._serving = False
        hooks = Hooks(self._before_call, lambda: None)
        hot, cold = (RecordingDisk(disk, hooks) for disk in self.disks)
        self.log = Log(config, disk=hot, cold_disk=cold, clock=self.clock, background=False)
        engine = self.log.engine
        self.delivery = Delivery(
            engine.shards,
            clock=self.clock,
            wake=lambda _: None,
            on_bug=self._bugs.append,
        )
        feed = Feed(
            engine,
            self.delivery,
            counters=Counters(),
            read_cold=lambda *fetch: self._fetches.append(fetch),
        )
        engine.registry.on_created = self._met.append
        live = SimpleNamespace(feed=feed)
        self._app = cast("App", SimpleNamespace(config=config, engine=engine, live=live))
        self._caller = parse_keys("").anonymous
        self._saved = SavedWatches(self.log.engine.disk)
        self._found = self._saved.load()

    def _before_call(self) -> None:
        if self.records:
            if not any(shard.lock.locked() for shard in self.log.engine.shards):
                self.serve()
            self.note_cut()

    def note_cut(self) -> None:
        readers = {name: deepcopy(stream.reader) for name, stream in self.streams.items()}
        now_ms = self.clock.now_ms()
        self.cuts.append(Cut(self.disks.copy(), deepcopy(self.known), readers, now_ms))

    # Streams.

    def watch(self, name: str, *topics: str, is_late: bool = False, limit: int = 0) -> None:
        body = WatchBody(topics={topic: WatchStart() for topic in topics}, limit=limit)
        watcher = build_watcher(
            self._app, self._caller, body.topics, body, lenient=False, frame_format=SSE
        )
        self._open(name, watcher, Reader(), is_late=is_late)
        self._bodies[name] = msgspec.json.encode(body)

    def _open(self, name: str, watcher: Watcher, reader: Reader, *, is_late: bool) -> None:
        watcher.on_behind = lambda one: self._due.update({one: None})
        stream = self.streams[name] = Stream(name, watcher, reader, is_late)
        watcher.open(stream.line)

    def _save(self, name: str) -> SavedWatch:
        return SavedWatch(
            wid=name,
            caller=self._caller.name,
            body=msgspec.Raw(self._bodies[name]),
            places=save_places(self.streams[name].watcher),
        )

    def save_watches(self) -> None:
        """Write the log anew by which a server knows its watches again."""
        self.known.unsure |= self.streams.keys() - self.known.kept
        self._saved.begin()
        self._saved.add(self._save(name) for name in self.streams)
        self._saved.finish()
        self.known.kept, self.known.unsure = {*self.streams}, set()

    def keep(self, *names: str) -> None:
        """Add watches to the log."""
        self.known.unsure |= set(names)
        self._saved.append([self._save(name) for name in names], [])
        self.known.unsure -= set(names)
        self.known.kept |= set(names)

    def end_watch(self, name: str) -> None:
        """Let a watch end, and say so in the log."""
        self.streams.pop(name).watcher.close()
        self.known.kept.discard(name)
        self.known.unsure.add(name)
        self._saved.append([], [name])
        self.known.unsure.discard(name)

    def restore(self, readers: dict[str, Reader]) -> None:
        """Come back with the ids of the last frames, as `WatchSession.connect` takes them."""
        found = {one.wid for one in self._found}
        known = self.known
        require(known.kept <= found <= known.kept | known.unsure, f"{found} are saved: {known}")
        self.met["watch on its way"] += bool(known.unsure)
        known.kept, known.unsure = set(found), set()
        for gone in readers.keys() - found:
            del readers[gone]
        for one in self._found:
            body = _DECODE_BODY(one.body)
            watcher = restore_watcher(self._app, self._caller, body, one)
            self._bodies[one.wid] = bytes(one.body)
            if one.wid not in readers:
                continue  # it was about to end: nobody comes back
            reader = readers[one.wid]
            if reader.last_id is not None:
                watcher.resume(decode_event_id(reader.last_id))
            self._open(one.wid, watcher, reader, is_late=False)

    def reconnect(self, name: str) -> None:
        """Lose what is on its way, and come back with the id of the last frame that arrived."""
        stream = self.streams[name]
        stream.watcher.close()
        if stream.reader.last_id is not None:
            stream.watcher.rewind(decode_event_id(stream.reader.last_id))
        self._open(name, stream.watcher, stream.reader, is_late=stream.is_late)

    def take(self, name: str, frames: int) -> None:
        self.streams[name].take(frames)
        self.serve()

    def serve(self) -> None:
        """Send all that there is room for."""
        if self._serving:
            return
        self._serving = True
        while self._serve_once():
            pass
        self._serving = False
        if self._bugs:
            raise self._bugs[0]

    def _serve_once(self) -> bool:
        """Do one turn; tell whether another one may do more."""
        while self._fetches:
            topic, request, done = self._fetches.popleft()
            self.met["cold read"] += 1
            done(self._read(topic, request))
        while self._met:
            topic = self._met.popleft()
            for watcher in self._app.live.feed.newcomers.of(topic):
                watcher.meet(topic)
        due, self._due = self._due, {}
        with self._app.live.feed.turn():
            self.delivery.drain()
            for watcher in due:
                watcher.pump()
        for stream in self.streams.values():
            if not stream.is_late:
                stream.take(len(stream.line.frames))
            if stream.watcher.blocked and not stream.line.buffered_bytes:
                self._due[stream.watcher] = None
        return bool(self._due or self._fetches or self._met or self.delivery.depth)

    def _read(self, topic: Topic, request: DiffRequest) -> Any:  # noqa: ANN401 - a page or an error
        try:
            return self.log.engine.read(topic, request)
        except TopicsError as error:
            return error

    # Words.

    def create(self, topic: str, durability: str, *, cap_records: int = 0) -> None:
        self.known.creating = topic
        self.log.create(topic, durability=durability, cap_records=cap_records)
        self.known.creating = None
        self._note_life(topic)

    def _note_life(self, topic: str) -> None:
        config, life = self.log.state(topic).config, self.log.state(topic).epoch
        is_sure = config.durability == "fsync"
        self.known.lives.setdefault(topic, []).append(Life(life, is_sure, config.cap_records))
        self.serve()

    def drop(self, topic: str) -> None:
        life = self.known.lives[topic][-1]
        life.dropping = True
        self.log.drop(topic)
        life.dropped = True
        self.serve()

    def append(self, topic: str, count: int = 1, *, tag: str = "t", pad: int = 0) -> list[int]:
        known, life = self.known, self.known.lives[topic][-1]
        numbers = range(known.next_n, known.next_n + count)
        known.next_n += count
        known.tags |= dict.fromkeys(numbers, tag)
        life.asked |= set(numbers)
        records = [{"data": n, "tag": tag, "meta": {"pad": "x" * pad}} for n in numbers]
        seqs = list(self.log.append(topic, records, create=False).seqs)
        for seq, n in zip(seqs, numbers, strict=True):
            life.ack(seq, n)
        self.serve()
        return seqs

    def delete(self, topic: str, tag: str, *, before_seq: int | None = None) -> None:
        life = self.known.lives[topic][-1]
        life.going = {
            n
            for seq, n in life.acked.items()
            if self.known.tags[n] == tag and (before_seq is None or seq < before_seq)
        }
        self.log.delete(topic, match=["tag", "Eq", tag], before_seq=before_seq)
        life.gone |= life.going
        life.going = set()
        self.serve()

    def work(self, *steps: str) -> None:
        for step in steps:
            getattr(self.log.engine, step)()
            if step in {"sync", "checkpoint", "snapshot"}:
                self._all_durable()
            self.serve()

    def _all_durable(self) -> None:
        for lives in self.known.lives.values():
            lives[-1].durable |= set(lives[-1].acked)

    # After a crash.

    def check(self, readers: dict[str, Reader], *, kill: bool) -> None:
        """Let the readers come back and read to the end; hold it against what was promised."""
        before = deepcopy(readers)
        self.restore(readers)
        self.serve()
        for topic in {*self.known.lives, *self.log.topics()}:
            life = self._settle_life(topic)
            for stream in self._streams_of(topic):
                self._check_views(topic, life, stream.reader)
            if life is not None:
                self._check_records(topic, life, before, kill=kill)
        self.known.creating = None

    def _streams_of(self, topic: str) -> list[Stream]:
        """Return those who asked for a topic."""
        return [
            stream
            for stream in self.streams.values()
            if topic in stream.watcher.parents or topic.startswith(stream.watcher.patterns)
        ]

    def _check_records(
        self, topic: str, life: Life, before: dict[str, Reader], *, kill: bool
    ) -> None:
        whole = self._read_anew(topic)
        self._check_loss(topic, life, whole, kill=kill)
        for stream in self._streams_of(topic):
            old = before[stream.name].views.get(topic, [])
            new = stream.reader.views[topic]
            since = old[-1] if len(old) == len(new) else View()
            self._count(life, new[-1], since=since, whole=whole)
            self.met["another life"] += 0 < len(old) < len(new)
            self._check_suffix(topic, life, new[-1], since=since, whole=whole)
            self._check_loss(topic, life, new[-1], kill=kill)
        for seq, n in whole.records.items():
            life.ack(seq, n)  # also of an append on its way: now somebody was told of it
        life.crashed |= {seq for seq, reason in whole.lost.items() if reason == CRASHED}

    def _count(self, life: Life, view: View, *, since: View, whole: View) -> None:
        new = {why for seq, why in view.lost.items() if seq not in since.lost}
        gone = since.records.keys() - whole.records.keys()
        self.met["news"] += view.records.keys() > since.records.keys()
        self.met["lost news"] += any(whole.lost.get(seq) == CRASHED for seq in gone)
        self.met["crash told"] += CRASHED in new
        self.met["eviction told"] += bool(EVICTED & new)
        unseen = life.removed - view.records.keys() - view.lost.keys()
        self.met["deleted unseen"] += bool(unseen)

    def _settle_life(self, topic: str) -> Life | None:
        """Find which life of a topic the crash has left; it must be one that was promised."""
        lives = self.known.lives.get(topic, [])
        known = lives[-1] if lives else None
        ids = {life.id for life in lives}
        found = self.log.engine.find_topic(topic)
        if found is None:
            gone = known is None or known.dropping
            require(gone, f"{topic} is gone, which was created and not dropped")
            if known is not None:
                known.dropped = True
            return None
        if known is not None and found.id == known.id:
            require(not known.dropped, f"{topic} is back, which was dropped")
            known.dropping = False
            return known
        require(self.known.creating == topic and found.id not in ids, f"whose life is {found.id}?")
        self._note_life(topic)
        return self.known.lives[topic][-1]

    def _read_anew(self, topic: str) -> View:
        """Read a topic from its start, as a reader who was never there."""
        body = WatchBody(topics={topic: WatchStart()}, limit=3)
        watcher = build_watcher(
            self._app, self._caller, body.topics, body, lenient=False, frame_format=SSE
        )
        self._open("anew", watcher, Reader(), is_late=False)
        self.serve()
        watcher.close()
        return self.streams.pop("anew").reader.views[topic][-1]

    def _check_views(self, topic: str, life: Life | None, reader: Reader) -> None:
        """Every view is of one life, and the last one of the life that is."""
        views = reader.views.get(topic, [])
        lives = self.known.lives.get(topic, [])
        ended = [view.ended for view in views]
        require(all(ended[:-1]), f"{topic}: a life ended without a word")
        if life is None:
            require(all(ended), f"{topic} is gone, and its reader was not told")
        else:
            require(bool(views) and not ended[-1], f"{topic}: the reader thinks it is gone")
        at = len(lives) - 1
        for view in reversed(views):
            if view is views[-1] and life is not None:
                at = lives.index(life)
            numbers = set(view.records.values())
            while at >= 0 and not numbers <= lives[at].asked:
                at -= 1
            require(at >= 0, f"{topic}: {sorted(numbers)} are of no life of it")
            if view is views[-1] and life is not None:
                require(lives[at] is life, f"{topic}: a dead life is shown as the one that is")
            for seq, n in view.records.items():
                wanted = lives[at].acked.get(seq, n)
                require(wanted == n, f"{topic} {seq}: is {wanted}, was shown as {n}")
            require(not set(view.records) & set(view.lost), f"{topic}: shown, and called lost")
            at -= 1 if numbers else 0

    def _check_suffix(
        self, topic: str, life: Life, view: View, *, since: View, whole: View
    ) -> None:
        """Check that what came after an id is all that is there behind it, and no more."""
        removed = life.removed
        head_seq = self.log.state(topic).head_seq
        require(view.at == whole.at == head_seq, f"{topic}: {view.at} {whole.at} of {head_seq}")
        # All of this life is accounted for, for both readers.
        for seen in (view, whole):
            unseen = set(range(1, head_seq + 1)) - seen.records.keys() - seen.lost.keys() - removed
            require(not unseen, f"{topic}: of {sorted(unseen)} nobody has told")
        got = {seq: n for seq, n in view.records.items() if seq not in since.records}
        wanted = {seq: n for seq, n in whole.records.items() if seq > since.at}
        require(got == wanted, f"{topic} from {since.at}: {got}, and there is {wanted}")
        lost = view.lost.keys() - since.lost.keys()
        differ = lost ^ {seq for seq in whole.lost if seq > since.at}
        require(differ <= removed, f"{topic} from {since.at}: {sorted(differ)} lost for one only")
        back = {seq for seq, n in got.items() if n in life.gone}
        require(not back, f"{topic}: {sorted(back)} were deleted, and are back")
        # What had arrived is still there, or its loss is told to whoever asks.
        for seq, n in since.records.items():
            require(whole.records.get(seq, n) == n, f"{topic} {seq} was {n}: {whole}")
            told = seq in whole.records or seq in whole.lost or seq in removed
            require(told, f"{topic} {seq} had arrived, and is lost in silence")

    def _check_loss(self, topic: str, life: Life, view: View, *, kill: bool) -> None:
        """Only what may be lost is lost."""
        sure = (set(life.acked) if kill else life.durable) - life.removed - life.crashed
        in_flight = len(life.asked) - len(life.acked)
        for seq, reason in view.lost.items():
            if reason == CRASHED:
                may = not (kill or life.is_sure) or seq in life.crashed
                require(may and seq not in sure, f"{topic} {seq} was safe, and a crash took it")
            else:
                require(reason in EVICTED, f"{topic} {seq} is lost by {reason}")
                later = sum(other > seq for other in life.acked) + in_flight
                is_due = seq not in sure or 0 < life.cap <= later
                require(is_due, f"{topic} {seq} was evicted with {later} behind it")

    def go_on(self) -> None:
        """Append to all that is there: new seqs, and the readers get them at once."""
        for topic in self.log.topics():
            life, streams = self.known.lives[topic][-1], self._streams_of(topic)
            told = set(life.acked)
            for stream in streams:
                told |= stream.reader.views[topic][-1].records.keys()
            seqs = self.append(topic, 2, tag="late")
            require(seqs[0] > max(told, default=0), f"{seqs} again")
            for stream in streams:
                records = stream.reader.views[topic][-1].records
                got = {seq: n for seq, n in records.items() if seq >= seqs[0]}
                wanted = {seq: life.acked[seq] for seq in seqs}
                require(got == wanted, f"{stream.name} got {got} of {topic}, not {wanted}")


def crashed(disks: Disks, seed: int) -> Disks:
    return disks.kill() if seed == KILL else disks.power_cut(seed)


def check_cut(config: ServerConfig, cut: Cut, seed: int, *, then: int | None) -> Counter[str]:
    """Crash there, start again, come back, go on; then crash once more, behind a sync."""
    disks = crashed(cut.disks.copy(), seed)
    run = WatchRun(config, disks=disks, known=deepcopy(cut.known), now_ms=cut.now_ms)
    readers = deepcopy(cut.readers)
    run.check(readers, kill=seed == KILL)
    run.go_on()
    if then is not None:
        run.work("sync")
        disks = crashed(run.disks, then)
        again = WatchRun(config, disks=disks, known=run.known, now_ms=run.clock.now_ms())
        again.check(readers, kill=then == KILL)
        again.go_on()
    return run.met
