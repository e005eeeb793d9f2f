"""Who hears of news, and in which order.

Owns the set of topics that have news nobody was told yet, and the listeners of each. `mark` is
called by writers on any thread with their shard's lock held and only takes note; `drain` and all
else run on the one thread that delivers.
Keeps: a topic waits at most once, however often it is written; what was published before a
listener is called can be read by it; a topic under pressure is told late, never not at all.
"""

from collections import deque
from collections.abc import Callable, Sequence

from topics.clock import Clock
from topics.engine.delivery.bands import WEIGHTS, Bands
from topics.engine.delivery.governor import SAMPLE_S, Governor
from topics.engine.delivery.priority import age_boost, band_of, effective_priority
from topics.engine.shard import Shard, ignore
from topics.engine.topics.topic import Topic

Listener = Callable[[Topic], None]
LOWEST = len(WEIGHTS) - 1
DRAIN_S = 0.005
"""After so long a drain lets others have the thread."""


class _Watched:
    """A topic somebody listens to."""

    __slots__ = ("delivered_s", "listeners", "marked", "marked_s", "topic")

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.listeners: dict[Listener, None] = {}
        self.marked = False
        self.marked_s = 0.0
        self.delivered_s = float("-inf")


class Delivery:
    """The listeners of one engine.

    `wake` is asked to call `drain`, now (0.0, from any thread) or in so many seconds (from the
    thread that drains).
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        *,
        clock: Clock,
        wake: Callable[[float], None],
        on_bug: Callable[[Exception], None],
    ) -> None:
        self._shards = shards
        self._clock = clock
        self._wake = wake
        self._on_bug = on_bug
        self._woken = False
        self._watched: dict[Topic, _Watched] = {}
        self._incoming: deque[_Watched] = deque()
        self._bands: Bands[_Watched] = Bands()
        self._later: list[_Watched] = []
        """Told a moment ago: the next news wait for company."""
        self._held: list[_Watched] = []
        """Of the lowest band, while it is paused."""
        self.governor = Governor()
        self._busy_s = 0.0
        self._latency_s = 0.0
        self._sampled_s = clock.monotonic_s()
        for shard in shards:
            shard.on_published = self.mark

    @property
    def pressure(self) -> float:
        return self.governor.pressure

    @property
    def depth(self) -> int:
        """Return how many topics have news that are not told."""
        return len(self._incoming) + len(self._bands) + len(self._later) + len(self._held)

    # Listening.

    def listen(self, topic: Topic, listener: Listener) -> None:
        """Hear of everything published after this call; read once to see what was before.

        Takes no lock, for which it might have to wait while a large write is made: a writer that
        looks before this call and finds nobody has published before it, too.
        """
        watched = self._watched.get(topic)
        if watched is None:
            watched = self._watched[topic] = _Watched(topic)
        if listener not in watched.listeners:
            watched.listeners[listener] = None
            topic.watchers += 1

    def unlisten(self, topic: Topic, listener: Listener) -> None:
        watched = self._watched.get(topic)
        if watched is None or listener not in watched.listeners:
            return
        del watched.listeners[listener]
        topic.watchers -= 1
        if not watched.listeners:
            del self._watched[topic]

    def mark(self, topic: Topic) -> None:
        """Note that a topic has news; its shard's lock is held."""
        watched = self._watched.get(topic)
        if watched is None or watched.marked:
            return
        watched.marked = True
        watched.marked_s = self._clock.monotonic_s()
        self._incoming.append(watched)
        # Seen false by two threads at once it is asked twice, which costs a call and harms nothing.
        if not self._woken:
            self._woken = True
            self._wake(0.0)

    # Delivering.

    def drain(self, budget_s: float = DRAIN_S) -> int:
        """Tell of news, the urgent first, until the budget is used; return of how many topics."""
        self._woken = False  # first: whoever marks from now on wakes us again
        started_s = now_s = self._clock.monotonic_s()
        self._arrange(now_s)
        told = 0
        while now_s - started_s < budget_s or not told:
            watched = self._bands.pop()
            if watched is None:
                break
            self._tell(watched)
            now_s = watched.delivered_s = self._clock.monotonic_s()
            self._latency_s = max(self._latency_s, now_s - watched.marked_s)
            told += 1
        self._busy_s += now_s - started_s
        self._ask_again(now_s)
        return told

    def sample(self) -> None:
        """Measure the pressure: to be called every 100 ms."""
        now_s = self._clock.monotonic_s()
        passed_s = max(SAMPLE_S / 2, now_s - self._sampled_s)
        pressure = self.governor.sample(
            depth=self.depth,
            latency_ms=self._latency_s * 1000,
            busy_share=self._busy_s / passed_s,
        )
        self._sampled_s, self._busy_s, self._latency_s = now_s, 0.0, 0.0
        for shard in self._shards:
            shard.commit.pressure = pressure
        if self._held:  # to be arranged anew: the pause may be over, or age may have lifted some
            self._incoming.extend(self._held)
            self._held.clear()
            self._wake(0.0)

    def close(self) -> None:
        """Tell nobody any more."""
        for shard in self._shards:
            with shard.lock:
                shard.on_published = ignore
                shard.commit.pressure = 0.0
        for topic, watched in list(self._watched.items()):
            topic.watchers -= len(watched.listeners)
        self._watched.clear()

    def _tell(self, watched: _Watched) -> None:
        watched.marked = False  # before the listeners read: what comes during it is news again
        first = next(iter(watched.listeners), None)
        if first is not None:
            self._tell_one(first, watched.topic)  # before the others are looked at: he may tell all
        for listener in tuple(watched.listeners):
            if listener is not first:
                self._tell_one(listener, watched.topic)

    def _tell_one(self, listener: Listener, topic: Topic) -> None:
        try:
            listener(topic)
        except Exception as bug:  # noqa: BLE001 - the border: the other listeners go on
            self._on_bug(bug)

    def _arrange(self, now_s: float) -> None:
        """Put what waits into its bands, or aside."""
        now_ms = self._clock.now_ms()

        def band(watched: _Watched) -> int:
            return self._band_of(watched, now_s=now_s, now_ms=now_ms)

        if len(self._bands):
            self._bands.rearrange(band)  # waiting made some of them more urgent
        quiet_s = self.governor.coalesce_s
        due = self._later
        self._later = []
        while self._incoming:
            due.append(self._incoming.popleft())
        if len(due) == 1 and not (quiet_s or len(self._bands) or self.governor.paused):
            self._bands.push(due.pop(), LOWEST)  # alone, it needs no order: it is next
        for watched in due:
            if quiet_s and now_s - watched.delivered_s < quiet_s:
                self._later.append(watched)
            else:
                self._bands.push(watched, band(watched))
        if self.governor.paused:
            self._held.extend(self._bands.take(LOWEST))

    def _band_of(self, watched: _Watched, *, now_s: float, now_ms: int) -> int:
        topic = watched.topic
        used_ms = max(topic.last_ts, topic.last_read_ts or 0, topic.created_ts)
        priority = effective_priority(topic.config, idle_ms=now_ms - used_ms)
        return band_of(priority + age_boost(waited_ms=int((now_s - watched.marked_s) * 1000)))

    def _ask_again(self, now_s: float) -> None:
        if len(self._bands) or self._incoming:
            self._woken = True
            self._wake(0.0)
        elif self._later:
            first_s = min(watched.delivered_s for watched in self._later)
            self._wake(max(0.0, first_s + self.governor.coalesce_s - now_s))
