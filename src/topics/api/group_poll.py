"""`POST /v0/groups/:group/poll`: read all partitions of a member, waiting for something to read.

    plan → read → answer, or listen to every partition and to the group → plan again

Ends by records, by a loss to tell, by the end of its window, by a new generation, by the end of its
time, or of the server.
"""

from typing import TYPE_CHECKING

import msgspec

from topics.api.exchange import Exchange
from topics.api.long_poll import set_until_alarm
from topics.engine.groups.poll import PollPlan
from topics.engine.topics.topic import Topic
from topics.errors import TopicsError
from topics.limits import MAX_WAIT_MS
from topics.model.groups import Polled, PolledBatch, PollRequest
from topics.storage.wal.group_commit import Commitment

if TYPE_CHECKING:
    from topics.api.alarms import Alarm
    from topics.api.app import App


class GroupPoll:
    """One poll on its way."""

    def __init__(self, app: "App", exchange: Exchange, request: PollRequest) -> None:
        self._app = app
        self._exchange = exchange
        self._request = request
        self._groups = app.engine.groups
        self._since_s = app.clock.monotonic_s()
        self._alarm: Alarm | None = None
        self._until_alarm: Alarm | None = None
        self._is_over = not request.wait_ms
        self._plan: PollPlan | None = None
        """While it listens: what it was told last."""
        self._is_due = False
        """Something came up while it read."""

    def begin(self) -> None:
        if not self._is_over:
            wait_s = min(self._request.wait_ms, MAX_WAIT_MS) / 1000
            self._alarm = self._app.live.alarms.set(wait_s, self._time_is_over)
            self._app.live.streams[self] = None
            self._await_until()
        self._ask()

    # Reading.

    def _ask(self) -> None:
        """Plan anew; a refusal ends the poll."""
        self._is_due = False
        waiter = self._app.ready_log.group_waiter
        try:
            _, word = self._groups.submit_poll(self._exchange.name, self._request, waiter=waiter)
        except TopicsError as error:
            self._fail(error)
        else:
            waiter.tell(word, self._planned)

    def _planned(self, word: Commitment) -> None:
        plan = word.answer
        if word.error is not None:
            self._fail(word.error)
            return
        assert isinstance(plan, PollPlan)
        if self._app.ready_log.poll_blocks(plan):
            self._app.spawn(self._read_aside(plan))
            return
        try:
            polled = self._groups.finish_poll(plan, self._groups.read_plan(plan))
        except TopicsError as error:
            self._fail(error)
        else:
            self._take(plan, polled)

    async def _read_aside(self, plan: PollPlan) -> None:
        """Read off the event loop: the cold tier or a router may be slow, and nobody else waits."""
        try:
            polled = await self._app.ready_log.read_poll(plan)
        except TopicsError as error:
            self._fail(error)
        else:
            self._take(plan, polled)

    def _take(self, plan: PollPlan, polled: Polled) -> None:
        if self._is_over or polled.is_news:
            self._answer(polled)
            return
        self._request = self._request.behind(polled.positions)
        self._listen(plan.without_ended(polled.batches))

    # Waiting.

    def _listen(self, plan: PollPlan) -> None:
        self._plan = plan
        for turn in plan.turns:
            self._app.live.delivery.listen(turn.topic, self._look)
        self._groups.listen(plan, self._note)
        if self._is_due or self._groups.has_news(plan):  # what came before the listening
            self._look_again()

    def _unlisten(self) -> None:
        plan, self._plan = self._plan, None
        if plan is not None:
            for turn in plan.turns:
                self._app.live.delivery.unlisten(turn.topic, self._look)
            self._groups.unlisten(plan, self._note)

    def _note(self) -> None:
        """Hear of a new generation, on any thread and with the shard's lock held."""
        self._app.loop.call_soon_threadsafe(self._look_again)

    def _look(self, topic: Topic) -> None:
        del topic
        self._look_again()

    def _look_again(self) -> None:
        if self._plan is None:  # it is reading already, or over
            self._is_due = True
            return
        self._unlisten()
        if self._exchange.answered:
            self._end()
        else:
            self._ask()

    def _await_until(self) -> None:
        until_ts = self._request.until_ts
        self._until_alarm = set_until_alarm(self._app, until_ts, self._until_is_there)

    def _until_is_there(self) -> None:
        self._await_until()  # again, where the clock was set back meanwhile
        self._look_again()

    def _time_is_over(self) -> None:
        self._is_over = True
        self._look_again()

    # The end.

    def _answer(self, polled: Polled) -> None:
        self._end()
        waited_ms = (self._app.clock.monotonic_s() - self._since_s) * 1000
        answer(self._app, self._exchange, polled, waited_ms if self._request.wait_ms else None)

    def _fail(self, error: TopicsError) -> None:
        self._end()
        self._exchange.fail(error)

    def _end(self) -> None:
        self._is_over = True
        self._unlisten()
        if self._alarm is not None:
            self._alarm.cancel()
            if self._until_alarm is not None:
                self._until_alarm.cancel()
            self._app.live.streams.pop(self, None)

    # As an open stream.

    def sweep(self, now_s: float) -> None:
        """Leave when the asker has left."""
        del now_s
        if self._exchange.answered:
            self._end()

    def stop(self) -> None:
        self._time_is_over()

    def meet(self, topic: Topic) -> None:
        """Look again when a topic or a partition of the group comes."""
        topics = self._plan.group.topics if self._plan is not None else ()
        if any(topic.name == name or topic.name.startswith(f"{name}-") for name in topics):
            self._look_again()


def answer(app: "App", exchange: Exchange, polled: Polled, waited_ms: float | None) -> None:
    """Send what was read."""
    waited = b"" if waited_ms is None else b',"wait_ms":%.3f' % waited_ms
    parts = [b'{"generation":%d,"batches":[' % polled.generation]
    scanned = 0
    for batch in polled.batches:
        page = batch.page
        app.metrics.records_delivered += page.count
        app.metrics.tombstones += page.tombstone is not None
        scanned += page.records_scanned
        separator = b"" if len(parts) == 1 else b","
        parts += [separator + _head(batch), page.records_json, _tail(batch)]
    until = b""
    if polled.until_reached is not None:
        until = b'"until_reached":%b,' % (b"true" if polled.until_reached else b"false")
    parts.append(
        b'],"positions":%b,%b"performance":{"server_total_ms":%.3f,"records_scanned":%d%b}}'
        % (msgspec.json.encode(polled.positions), until, exchange.elapsed_ms(), scanned, waited)
    )
    exchange.reply_parts(parts)


def _head(batch: PolledBatch) -> bytes:
    return b'{"topic":"%b","partition":%d,"records":[' % (batch.topic.encode(), batch.partition)


def _tail(batch: PolledBatch) -> bytes:
    page = batch.page
    return b'],"tombstone":%b,"next_from_seq":%d,"head_seq":%d,"caught_up":%b,"lag":%d}' % (
        b"null" if page.tombstone is None else msgspec.json.encode(page.tombstone),
        page.next_from_seq,
        page.head_seq,
        b"true" if page.caught_up else b"false",
        page.lag,
    )
