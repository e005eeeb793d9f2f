"""What pushes: wakes deliveries on the event loop, looks after every open stream.

Owns the timers of all streams, three for the whole server: the sample of the pressure, the sweep
over the streams, and the alarms. Keeps: what is served in one turn of the loop shares its reads.
"""

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

from topics.aio import AsyncLog
from topics.api.alarms import Alarms
from topics.engine.delivery.governor import SAMPLE_S
from topics.engine.delivery.scheduler import Delivery
from topics.engine.diff import DiffRequest
from topics.engine.topics.topic import Topic
from topics.engine.watch.feed import ColdDone, Feed
from topics.engine.watch.patterns import Waiting
from topics.engine.watch.watcher import Watcher
from topics.errors import TopicsError

if TYPE_CHECKING:
    from topics.api.app import App

SWEEP_S = 0.05
SWEEP_PARTS = 5
"""A pass over all streams is cut into so many, to keep no delivery waiting for all of it."""
MEETINGS_A_TURN = 256
"""Watchers told of a new topic: one pattern may have thousands of them."""
RETRY_AFTER_MS = 2_000
"""When a reader that was sent away may come back."""


class OpenStream(Protocol):
    """A connection that is pushed to."""

    def sweep(self, now_s: float) -> None:
        """Send a heartbeat, or give the reader up, if that is due."""

    def stop(self) -> None:
        """Say that the server stops, and end, perhaps after what is under way; twice: at once."""


class Live:
    """The pushing side of one server."""

    def __init__(self, app: "App", log: AsyncLog) -> None:
        engine = log.log.engine
        self.app = app
        self._log = log
        self._loop = app.loop
        self._thread = threading.get_ident()
        self.streams: dict[OpenStream, None] = {}
        self.alarms = Alarms(app.loop, app.clock)
        self.delivery = Delivery(
            engine.shards,
            clock=app.clock,
            wake=self._wake,
            on_bug=app.request_log.stream_bug,
        )
        self.feed = Feed(engine, self.delivery, counters=app.metrics, read_cold=self._read_cold)
        self._met: deque[Topic] = deque()
        """New topics of which the watchers hear in turns to come."""
        self._meeting: list[Waiting] = []
        """Those who are still to hear of the first one."""
        self._due: dict[Watcher, None] = {}
        self._due_scheduled = False
        self._late: asyncio.TimerHandle | None = None
        self._unswept: list[OpenStream] = []
        """What is left of the pass over the streams."""
        self._part = 0
        self._timers = [
            self._loop.call_later(SAMPLE_S, self._sample),
            self._loop.call_later(SWEEP_S, self._sweep),
        ]
        engine.registry.on_created = self._note_created

    def schedule(self, watcher: Watcher) -> None:
        """Serve a watcher in the next turn, together with all others that are due."""
        self._due[watcher] = None
        if not self._due_scheduled:
            self._due_scheduled = True
            self._loop.call_soon(self._pump_due)

    def stop_streams(self) -> None:
        for stream in list(self.streams):
            stream.stop()

    def stop(self) -> None:
        """End every stream and every wait."""
        self.stop_streams()
        for timer in self._timers:
            timer.cancel()
        if self._late is not None:
            self._late.cancel()
        self.delivery.close()
        self.alarms.close()

    def _pump_due(self) -> None:
        self._due_scheduled = False
        due, self._due = self._due, {}
        row = iter(due)
        with self.feed.turn():
            for watcher in row:
                try:
                    watcher.pump()
                except Exception as bug:  # noqa: BLE001 - the border: one bug stops one watcher
                    self.app.request_log.stream_bug(bug)
                if self.feed.is_late:
                    break
        left = dict.fromkeys(row)
        if left:  # before those who became due meanwhile
            self._due = left | self._due
            self.schedule(next(iter(left)))

    # Deliveries.

    def _wake(self, delay_s: float) -> None:
        if delay_s > 0.0:
            if self._late is not None:
                self._late.cancel()
            self._late = self._loop.call_later(delay_s, self._drain)
        elif threading.get_ident() == self._thread:
            self._loop.call_soon(self._drain)
        else:
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        with self.feed.turn():
            self.delivery.drain()

    def _note_created(self, topic: Topic) -> None:
        """Hear of a new topic, on any thread."""
        self._loop.call_soon_threadsafe(self._meet, topic)

    def _meet(self, topic: Topic) -> None:
        self._met.append(topic)
        if len(self._met) == 1:
            self._meeting = self.feed.newcomers.of(topic)
            self._meet_some()

    def _meet_some(self) -> None:
        """Have the next of those who wait for a topic meet it."""
        for _ in range(MEETINGS_A_TURN):
            if self._meeting:
                self._introduce(self._meeting.pop(), self._met[0])
                continue
            self._met.popleft()
            if not self._met:
                return
            self._meeting = self.feed.newcomers.of(self._met[0])
        self.app.turns.wait(self._meet_some)

    def _introduce(self, watcher: Waiting, topic: Topic) -> None:
        try:
            watcher.meet(topic)
        except Exception as bug:  # noqa: BLE001 - the border: the others meet it all the same
            self.app.request_log.stream_bug(bug)

    def _read_cold(self, topic: Topic, request: DiffRequest, done: ColdDone) -> None:
        async def read() -> None:
            try:
                done(await self._log.read_aside(topic, request))
            except TopicsError as error:
                done(error)

        self.app.spawn(read())

    # Time.

    def _sample(self) -> None:
        self._timers[0] = self._loop.call_later(SAMPLE_S, self._sample)
        self.delivery.sample()

    def _sweep(self) -> None:
        self._timers[1] = self._loop.call_later(SWEEP_S, self._sweep)
        now_s = self.app.clock.monotonic_s()
        if not self._unswept:
            self._unswept = list(self.streams)
            self._part = len(self._unswept) // SWEEP_PARTS + 1
            self.app.watches.forget_old(now_s)
        part = self._unswept[-self._part :]
        del self._unswept[-self._part :]
        for stream in part:
            if stream in self.streams:  # it may have ended since the pass began
                stream.sweep(now_s)
