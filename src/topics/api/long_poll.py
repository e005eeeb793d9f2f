"""A read that waits for something to read."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from topics.api.alarms import Alarm
from topics.api.exchange import Exchange
from topics.engine.diff import DiffRequest
from topics.engine.topics.topic import Topic
from topics.errors import TopicNotFound, TopicsError
from topics.limits import MAX_WAIT_MS
from topics.model.diff import Page

if TYPE_CHECKING:
    from topics.api.app import App


def set_until_alarm(app: "App", until_ts: int, call: Callable[[], None]) -> Alarm | None:
    """Have a reader look again when its window is over, if soon: no write may come to tell."""
    left_ms = until_ts - app.clock.now_ms()
    return app.live.alarms.set(left_ms / 1000, call) if 0 < left_ms <= MAX_WAIT_MS else None


class LongPoll:
    """Waits until there is news, the topic is gone, the time is over, or the server stops.

    The end of the window that was asked for is news too.
    """

    def __init__(
        self,
        app: "App",
        exchange: Exchange,
        topic: Topic,
        request: DiffRequest,
        answer: Callable[..., None],
    ) -> None:
        self._app = app
        self._exchange = exchange
        self._topic = topic
        self._request = request
        self._answer = answer
        self._since_s = app.clock.monotonic_s()
        self._until_alarm: Alarm | None = None

    def begin(self, wait_ms: int) -> None:
        live = self._app.live
        self._alarm = live.alarms.set(min(wait_ms, MAX_WAIT_MS) / 1000, self._time_is_over)
        self._await_until()
        live.delivery.listen(self._topic, self._look)
        live.streams[self] = None
        self._look(self._topic)  # what came between the first read and the listening

    def _await_until(self) -> None:
        until_ts = self._request.until_ts
        self._until_alarm = set_until_alarm(self._app, until_ts, self._until_is_there)

    def _until_is_there(self) -> None:
        self._await_until()  # again, where the clock was set back meanwhile
        self._look(self._topic)

    def _look(self, topic: Topic) -> None:
        page = self._read(topic)
        if page is None:
            return
        if page.is_news:
            self._finish(page)
        else:  # what was skipped need not be looked at again
            self._request = msgspec.structs.replace(self._request, from_seq=page.next_from_seq)

    def _time_is_over(self) -> None:
        page = self._read(self._topic)
        if page is not None:
            self._finish(page)

    def _read(self, topic: Topic) -> Page | None:
        """Read; None when there is nobody to tell, or nothing but an error."""
        if self._exchange.answered:
            self._end()
            return None
        try:
            if self._app.engine.find_topic(topic.name) is not topic:
                raise TopicNotFound(topic.name)
            return self._app.engine.read(topic, self._request)
        except TopicsError as error:
            self._end()
            self._exchange.fail(error)
            return None

    def _finish(self, page: Page) -> None:
        self._end()
        waited_ms = (self._app.clock.monotonic_s() - self._since_s) * 1000
        self._answer(self._app, self._exchange, page, waited_ms=waited_ms)

    def _end(self) -> None:
        live = self._app.live
        self._alarm.cancel()
        if self._until_alarm is not None:
            self._until_alarm.cancel()
        live.delivery.unlisten(self._topic, self._look)
        live.streams.pop(self, None)

    # As an open stream.

    def sweep(self, now_s: float) -> None:
        """Leave when the asker has left."""
        del now_s
        if self._exchange.answered:
            self._end()

    def stop(self) -> None:
        self._time_is_over()

    def meet(self, topic: Topic) -> None:
        """Wait for none but the own topic."""
