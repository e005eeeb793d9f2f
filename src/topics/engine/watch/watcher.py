"""One watcher: its places, and the frames that move them on.

Owns the cursors. The log is the buffer: when the sink is full nothing is read, the cursor stays
behind and finds what is still there, or a tombstone, when it goes on.
Keeps: frames of a topic leave in seq order; a seq is sent, announced, deleted, or filtered, once;
the id of a frame names the place right behind it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from topics.engine.topics.partitioned import parse_partition_name
from topics.engine.topics.topic import Topic
from topics.engine.watch import frames
from topics.engine.watch.convoy import Seat, Way
from topics.engine.watch.event_id import LIFE
from topics.engine.watch.feed import Feed, Options, Ready, Step
from topics.engine.watch.frames import Format, Trouble
from topics.engine.watch.patterns import topics_of
from topics.engine.watch.place import GONE, Place, event_id_of
from topics.errors import LimitReached, TopicsError
from topics.model.watch import WILDCARD, Window

OFFERED_BYTES = 64 * 1024
"""While more than that waits for a reader it is written to by the way on which that is counted."""
STEPS_A_TURN = 4
"""A watcher far behind lets the others have their turn."""


class Sink(Protocol):
    """Where frames go."""

    def write(self, data: bytes, /) -> None: ...

    def offer(self, data: bytes, limit_bytes: int, /) -> bool:
        """Write unless more than the limit is buffered; tell whether."""

    def has_room(self, limit_bytes: int, /) -> bool:
        """Tell whether more may be written: no more than the limit waits, nor of all its like."""


class Share(Protocol):
    """What a watcher may take of the memory for all of them."""

    def take_places(self, places: int) -> None:
        """Have so many places more; fewer where it is negative."""

    def find_full(self) -> LimitReached | None:
        """Tell why a watcher that is there already may not grow, if it may not."""


class _Unbounded:
    """All there is."""

    def take_places(self, places: int) -> None:
        """Count nothing."""

    def find_full(self) -> None:
        """Find nothing."""


UNBOUNDED = _Unbounded()


class _Fetch:
    """A read of the cold tier that is on its way."""

    __slots__ = ("place",)

    def __init__(self, place: Place) -> None:
        self.place = place


class Watcher:
    """The cursors of one watch, and the sink they are sent to while there is one."""

    def __init__(
        self,
        feed: Feed,
        options: Options,
        *,
        frame_format: Format,
        buffer_bytes: int,
        max_places: int,
        patterns: tuple[str, ...] = (),
        names: Iterable[str] = (),
        windows: Mapping[str, Window] | None = None,
        share: Share = UNBOUNDED,
    ) -> None:
        self._feed = feed
        self._options = options
        self.format = frame_format
        self._kind = f"{frame_format.share_key} {options.key}"
        self._alone: Place | None = None
        """The only place, while its frames are the same for all watchers of this kind."""
        self._buffer_bytes = buffer_bytes
        self._offer_bytes = min(buffer_bytes, OFFERED_BYTES)
        self._max_places = max_places
        self._set_patterns(patterns)
        self.parents = set(names)
        """Names that were asked for; every partition of such a topic gets a place, too."""
        self._timed = {
            name: options.within(window) for name, window in (windows or {}).items() if any(window)
        }
        """What to show of a topic, or of those of a pattern, that have a first or a last time."""
        self._share = share
        self.places: dict[str, Place] = {}
        self._awaited: set[str] = set()
        """Names and patterns of which this watcher is told when there is a topic."""
        self.sink: Sink | None = None
        self._behind: dict[Place, None] = {}
        self._refused = False
        self._seat: Seat | None = None
        """In a convoy, while this watcher waits with others; or the last one it had."""
        self._fetch: _Fetch | None = None
        """One at a time, so that what comes back is bounded; the others stay behind."""
        self.blocked = False
        """The sink is full; `pump` when it has room."""
        self.on_behind: Callable[[Watcher], None] = _ignore
        """Told that there is more to send, and room for it: `pump` in a later turn."""

    def add(self, topic: Topic, seq: int, *, asked: bool = True, by_pattern: bool = False) -> Place:
        place = Place(topic.name, topic, seq, asked=asked, by_pattern=by_pattern)
        self.put(place)
        return place

    def put(self, place: Place) -> None:
        """Take a place, between the times that were asked for."""
        if self._timed:
            place.options = self._options_of(place)
        self._leave_convoy()
        if place.name not in self.places:
            self._share.take_places(1)
        self.places[place.name] = place
        self._alone = None

    def _options_of(self, place: Place) -> Options | None:
        if not place.by_pattern:
            return self._timed.get(place.name)
        parent = None if place.topic is None else place.topic.parent
        if parent is not None and parent.name in self.parents:
            return self._timed.get(parent.name)
        pattern = self.pattern_of(place.name)
        return None if pattern is None else self._timed.get(pattern + WILDCARD)

    def pattern_of(self, name: str) -> str | None:
        """Return the last of the patterns that a name has."""
        ranks = self._ranks
        found = [rank for size in self._sizes if (rank := ranks.get(name[:size])) is not None]
        return self.patterns[max(found)] if found else None

    def _set_patterns(self, patterns: tuple[str, ...]) -> None:
        self.patterns = patterns
        """Prefixes of names; every topic that has one, now or later, gets a place."""
        self._ranks = {prefix: rank for rank, prefix in enumerate(patterns)}
        self._sizes = tuple({len(prefix) for prefix in patterns})

    # Connecting.

    def rewind(self, cursors: Mapping[str, int]) -> None:
        """Go back to the id of a frame, before `open`."""
        for place in self.places.values():
            place.rewind(cursors)

    def resume(self, cursors: Mapping[str, int]) -> None:
        """Stand where the id of a frame says, before `open`: it is newer than these places."""
        for place in self.places.values():
            place.resume(cursors)
        for name, seq in cursors.items():
            topic = self._feed.engine.find_topic(name)
            if topic is None or name in self.places or not self._wants(topic):
                continue
            if len(self.places) < self._max_places:
                place = self.add(topic, seq, asked=False, by_pattern=True)
                place.life = cursors.get(LIFE + name, topic.id)

    def open(self, sink: Sink) -> None:
        """Send to this sink from now on; the first frames go with the first `pump`."""
        assert self.sink is None
        self.sink = sink
        self.blocked = self._refused = False
        for place in list(self.places.values()):
            place.fresh, place.live, place.ended = True, False, False
            self._settle_life(place)
        self._await_newcomers()
        for topic in self._unmet():
            self.meet(topic)

    def _await_newcomers(self) -> None:
        for prefix in self.patterns:
            self._await(prefix + WILDCARD)
        for name in self.parents:
            if name not in self.places:  # all its partitions may come, or more of them
                self._await(name)

    def _await(self, name: str) -> None:
        self._awaited.add(name)
        self._feed.newcomers.wait(name, self)

    def _await_no_more(self, name: str) -> None:
        if name in self._awaited:
            self._awaited.discard(name)
            self._feed.newcomers.leave(name, self)

    def _unmet(self) -> Iterable[Topic]:
        """Return topics that this watcher may be new to: no more than there may be places."""
        engine = self._feed.engine
        yield from topics_of(engine, self.patterns, self._max_places + 1)
        for name in self.parents:
            parent = engine.find_partitioned(name)
            if parent is not None:
                yield from parent.partitions[: self._max_places + 1]

    def _wants(self, topic: Topic) -> bool:
        parent = topic.parent
        return topic.name.startswith(self.patterns) or (
            parent is not None and parent.name in self.parents
        )

    def close(self) -> None:
        """Send no more; the places stay for whoever opens again."""
        if self.sink is None:
            return
        self.sink = None
        for place in self.places.values():
            self._stop(place)
        for name in list(self._awaited):
            self._await_no_more(name)

    def drop(self, name: str) -> bool:
        """Forget a topic, or all partitions of one; tell whether it was watched."""
        place = self.places.pop(name, None)
        if place is None:
            return self._drop_partitions(name)
        self._share.take_places(-1)
        self._await_no_more(name)
        self._stop(place)
        return True

    def _drop_partitions(self, parent: str) -> bool:
        if parent not in self.parents:
            return False
        names = [
            place.name
            for place in self.places.values()
            if place.by_pattern and (parse_partition_name(place.name) or ("", 0))[0] == parent
        ]
        if not names:
            return False
        self.parents.discard(parent)
        self._await_no_more(parent)
        for name in names:
            self.drop(name)
        return True

    def drop_pattern(self, prefix: str) -> bool:
        """Forget a pattern and the topics that came by it; tell whether it was watched."""
        if prefix not in self.patterns:
            return False
        self._set_patterns(tuple(other for other in self.patterns if other != prefix))
        self._await_no_more(prefix + WILDCARD)
        for place in list(self.places.values()):
            if place.name.startswith(prefix) and place.by_pattern:
                self.drop(place.name)
        return True

    def meet(self, topic: Topic) -> None:
        """Follow a topic that is new, or new to this watcher, if it is one of its own."""
        place = self.places.get(topic.name)
        if self.sink is None:
            return
        if place is not None:
            self._settle_life(place)
        elif self._wants(topic):
            if self._has_room():
                self._listen(self.add(topic, 0, asked=False, by_pattern=True))
            else:
                self._refuse(self.sink, topic)

    def _has_room(self) -> bool:
        """Tell whether one more topic fits, without those that came by a pattern and are gone."""
        if len(self.places) >= self._max_places:
            gone = [p.name for p in self.places.values() if p.by_pattern and p.life == GONE]
            for name in gone:
                self.drop(name)
        return len(self.places) < self._max_places and self._share.find_full() is None

    def _refuse(self, sink: Sink, topic: Topic) -> None:
        """Say once that there is one topic too many: a pattern may meet any number of them."""
        if not self._refused and sink.has_room(self._buffer_bytes):
            self._refused = True
            full = self._share.find_full() or LimitReached("max_watch_topics", self._max_places)
            self._fail(full, [topic.name])

    # Serving.

    def on_news(self, topic: Topic) -> None:
        """Hear that a topic has news, or is gone.

        Hot: of a thousand watchers of one topic all but the first are sent what he was, with one
        look at where they stand, or were so before, as a convoy.
        """
        place = self._alone
        if place is not None and place.topic is topic and place.live and not topic.deleted:
            if place.seq == topic.head_seq:
                return
            ready = self._feed.ready.get(self._kind)
            if ready is not None and self._take_ready(place, ready, topic):
                return
        place = self.places.get(topic.name)
        if place is None or place.topic is not topic or self.sink is None:
            return
        if self._feed.is_late:  # there may be thousands who hear of it
            self._fall_behind(place)
        else:
            self._serve(place)

    def _take_ready(self, place: Place, ready: Ready, topic: Topic) -> bool:
        """Send what the first one at this place was sent, if that is all there is to it."""
        if (
            place.seq != ready.seq
            or ready.topic is not topic
            or self.sink is None
            or not self.sink.offer(ready.frame, self._offer_bytes)
        ):
            return False
        place.seq = ready.next_seq
        self._feed.counters.records_delivered += ready.count
        return True

    def join_convoy(self, find_way: Callable[[], Way | None]) -> None:
        """Be served together with all who wait at the same place, if this one waits."""
        place = self._alone
        if self.sink is None or place is None or (self._seat and self._seat.convoy):
            return
        topic = place.topic
        if topic is None or not place.live or place.seq != topic.head_seq:
            return
        way = find_way()
        if way is not None:
            self._seat = self._feed.seat(self._kind, topic, place, way)

    def _leave_convoy(self) -> None:
        if self._seat is not None:
            self._seat.leave()
            self._seat = None

    def pump(self) -> None:
        """Send what is behind, as far as the sink has room and the turn has time."""
        self.blocked = False
        for place in list(self._behind):
            if self.blocked or self.sink is None:
                return
            self._serve(place)
            if self._behind and self._feed.is_late:
                self.on_behind(self)
                return

    def meet_end(self) -> bool:
        """Tell whether the time is over for a place where all was sent: `pump` tells its reader.

        For whoever looks in now and then: no write comes to tell.
        """
        if not self._timed or self.sink is None:
            return False
        due = [place for place in self.places.values() if place.live and self._is_over(place)]
        self._behind.update(dict.fromkeys(due))
        return bool(due)

    def _is_over(self, place: Place) -> bool:
        until_ts = place.until_ts
        return 0 < until_ts <= self._feed.engine.clock.now_ms() and not place.ended

    def _serve(self, place: Place) -> None:
        topic = place.topic
        if topic is None or self._has_ended(place, topic) or self._is_fetching(place):
            return
        try:
            self._advance(place, topic)
        except TopicsError as error:
            self._give_up(place, error)

    def _advance(self, place: Place, topic: Topic) -> None:
        sink, feed = self.sink, self._feed
        assert sink is not None
        options = (place.options or self._options).of(topic)
        is_over = self._is_over(place)
        for _ in range(STEPS_A_TURN):
            if place.live and place.seq == topic.head_seq and not is_over:
                self._behind.pop(place, None)
                return
            if self._is_full(sink, place):
                return
            step = feed.step(topic, place.seq, options, fresh=place.fresh)
            if step is None:
                self._fetch_cold(place, topic, options)
                return
            self._send(place, step)
            is_over = False  # this step has looked; a write may still be on its way
            if place.ended:
                return
            if feed.is_late:
                break
        self._fall_behind(place)

    def _is_full(self, sink: Sink, place: Place) -> bool:
        """Tell whether a place has to wait for room."""
        if sink.has_room(self._buffer_bytes):
            return False
        self._behind[place] = None
        self.blocked = True
        return True

    def _fall_behind(self, place: Place) -> None:
        self._behind.pop(place, None)  # behind the others that wait
        self._behind[place] = None
        self.on_behind(self)

    def _is_fetching(self, place: Place) -> bool:
        return self._fetch is not None and self._fetch.place is place

    def _fetch_cold(self, place: Place, topic: Topic, options: Options) -> None:
        """Go on when the cold tier has answered, unless nobody waits for it by then."""
        if self._fetch is not None:
            self._behind[place] = None
            return
        fetch = self._fetch = _Fetch(place)
        self._leave_convoy()
        self._alone = None

        def done(step: Step | TopicsError) -> None:
            if self._fetch is fetch and self.sink is not None:
                self._fetch = None
                self._take_fetched(self.sink, place, step)

        self._feed.fetch(topic, place.seq, options, fresh=place.fresh, done=done)

    def _take_fetched(self, sink: Sink, place: Place, step: Step | TopicsError) -> None:
        if isinstance(step, TopicsError):
            self._give_up(place, step)
        elif not self._is_full(sink, place):  # if so it is read again when there is room
            self._send(place, step)
            if not place.ended:
                self._fall_behind(place)
        if self._behind and not self.blocked:
            self.on_behind(self)

    def _send(self, place: Place, step: Step) -> None:
        self._leave_convoy()
        place.fresh = False
        key = self.format.share_key
        if key is not None and self._is_like_others(place):
            self._alone = place
            shared, seq = (key, place.live), place.seq
            framed = step.framed.get(shared)
            if framed is None:
                framed = step.framed[shared] = self._frame(place, step)
                if place.live and place.topic is not None and step.is_plain:
                    self._feed.keep_ready(self._kind, Ready(place.topic, seq, step, framed[0]))
            place.seq = step.next_seq
        else:
            framed = self._frame(place, step)
        place.live = step.caught_up
        counters = self._feed.counters
        counters.records_delivered += step.count
        counters.tombstones += step.gap_body is not None
        for data in framed:
            self._write(data)
        if step.until_reached:
            place.ended = True
            self._stop(place)
            self._await(place.name)  # its next life has not ended

    def _is_like_others(self, place: Place) -> bool:
        """Tell whether even the ids of the frames are those of other watchers at this seq."""
        return len(self.places) == 1 and place.life == place.first_life and place.options is None

    def _frame(self, place: Place, step: Step) -> tuple[bytes, ...]:
        """Move the place through a step, and return the frames of the way."""
        framed: list[bytes] = []
        if step.gap_body is not None:
            place.seq = step.gap_seq
            framed.append(self._wrap(frames.TOMBSTONE, step.gap_body))
        place.seq = step.next_seq
        if step.count:
            framed.append(self._wrap(frames.RECORD, step.record_body))
        if step.until_reached or (step.caught_up and not place.live):
            body = frames.caught_up_body(
                place.name, head_seq=step.head_seq, until_reached=step.until_reached
            )
            framed.append(self._wrap(frames.CAUGHT_UP, body))
        return tuple(framed)

    def _wrap(self, kind: bytes, body: bytes) -> bytes:
        return self.format.wrap(kind, body, event_id_of(self.places.values()))

    def _write(self, data: bytes) -> None:
        if self.sink is not None:  # a sink may close while it is written to
            self.sink.write(data)

    def _give_up(self, place: Place, error: TopicsError) -> None:
        """Stop a topic that cannot be read, not the others of the watch."""
        place.live = False
        self._stop(place)
        self._await(place.name)  # its next life may be read
        self._fail(error, [place.name])

    def _fail(self, error: TopicsError, topics: list[str]) -> None:
        self._write(self.format.error(Trouble.of(error, topics=topics)))

    # Lives.

    def _settle_life(self, place: Place) -> None:
        """Announce the end of a life this watcher still stands in, and follow the next one."""
        topic = self._feed.engine.find_topic(place.name)
        if place.topic is not topic:
            self._stop(place)
        if place.life not in (GONE, topic.id if topic else GONE):
            self._announce_end(place)
        if topic is None:
            self._await(place.name)
            return
        self._await_no_more(place.name)
        if place.life == GONE:
            place.begin(topic)
        place.topic = topic
        self._listen(place)

    def _has_ended(self, place: Place, topic: Topic) -> bool:
        if self._feed.engine.find_topic(place.name) is topic:
            return False
        self._stop(place)
        self._settle_life(place)
        return True

    def _announce_end(self, place: Place) -> None:
        head_seq = place.end()
        body = frames.topic_deleted_body(place.name, head_seq=head_seq, reason="deleted")
        self._write(self._wrap(frames.TOPIC_DELETED, body))

    def _listen(self, place: Place) -> None:
        assert place.topic is not None
        self._feed.delivery.listen(place.topic, self.on_news)
        self._fall_behind(place)

    def _stop(self, place: Place) -> None:
        self._leave_convoy()
        self._alone = None
        self._behind.pop(place, None)
        if self._is_fetching(place):
            self._fetch = None
            if self._behind:  # they waited for it
                self.on_behind(self)
        if place.topic is not None:
            self._feed.delivery.unlisten(place.topic, self.on_news)


def _ignore(watcher: Watcher) -> None:
    """Take no note."""
