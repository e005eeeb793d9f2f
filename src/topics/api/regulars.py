"""Connections that repeat themselves: the plain writes of all of them are read with one call.

A client that writes one record after the other sends the same head each time and waits for the
answer before it sends the next. Such a connection joins here, and the event loop no longer reads
from it: `Intake` of the kernel does, from all that have something, and gathers what are whole
plain writes. `send_answers` answers them. No object is made for a request.
Measured with 64 connections: see docs/internals/decisions/0038-regulars-are-read-with-one-call.md.
Keeps: a regular is at rest whenever it is read from here, so nothing it sent waits and nothing it
is sent is under way; whatever else it sends goes to its connection as if read there.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from topics.aio import Gathered
from topics.api.append import answer_gathered, answer_parts
from topics.api.exchange import GZIP_MIN_BYTES
from topics.api.head import Head
from topics.engine.append import Append
from topics.errors import TopicsError
from topics.kernel import Gathering, Intake, send_answers

if TYPE_CHECKING:
    from topics.api.app import App
    from topics.api.http1 import Http1Connection

_MANY_RECORDS = 1 << 31
_SMALL_RECORDS = 16
"""The answer to so many is below GZIP_MIN_BYTES, whatever their topic is called."""
assert 512 + 22 * _SMALL_RECORDS < GZIP_MIN_BYTES
Kind = tuple[Head, int, int, Gathering, list[tuple[int, Any]]]


class Regulars:
    """All connections of one server that are read from in this way."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._intake = Intake()
        self._members: set[Http1Connection] = set()
        self._unanswered: list[Gathered] = []
        """Of this turn."""
        self._started_s = 0.0
        self._on_answer = self._answer  # one object: writes are gathered by how they are answered

    def __len__(self) -> int:
        return len(self._members)

    def join(self, connection: "Http1Connection") -> bool:
        """Read from a connection that is at rest; False where the system does not let us."""
        try:
            self._intake.join(connection.descriptor, connection)
        except OSError:
            return False
        self._members.add(connection)
        if len(self._members) == 1:
            self._app.loop.add_reader(self._intake.fileno(), self._serve)
        return True

    def leave(self, connection: "Http1Connection") -> None:
        """Let a connection that has joined be read from by others again."""
        self._intake.leave(connection.descriptor)
        self._members.remove(connection)
        if not self._members:
            self._app.loop.remove_reader(self._intake.fileno())

    def was_active(self, connection: "Http1Connection") -> bool:
        return self._intake.was_active(connection.descriptor)

    def _serve(self) -> None:
        """Take one turn of all who have something."""
        app = self._app
        log = app.log
        self._started_s = app.clock.monotonic_s()
        if log is not None:
            for waiter in log.waiter_row:
                if waiter.latest is not None:  # asked for before: nothing queues behind our back
                    waiter.submit_gathered()
        others: list[tuple[Http1Connection, bytes]] = []
        lost: list[Http1Connection] = []
        try:
            others = self._intake.take(self._find)
        except Exception as bug:  # noqa: BLE001 - the border: what was read is forgotten
            self._report("reading failed", bug)
            lost = list(self._members)
        if self._unanswered:
            self._write()
        for connection in lost:  # what comes next would be answered in place of it
            connection.abort()
        if others:
            self._pass_on(others)

    def _find(self, raw: bytes) -> Kind | None:
        """Return where the writes with a head go in this turn; None for the long way."""
        try:
            return self._find_kind(raw)
        except Exception as bug:  # noqa: BLE001 - the border: what was read must not be lost
            self._report("a head failed", bug)
            return None

    def _find_kind(self, raw: bytes) -> Kind | None:
        app = self._app
        log, head = app.log, app.remembered_head(raw)
        if (
            head is None
            or head.caller is None
            or log is None
            or app.stopping
            or app.parking.rows
            or not (head.is_plain_write and head.keep_alive)
            or not (head.caller.is_anonymous or self._has_room(head))
        ):
            return None
        topic = log.log.engine.find_topic(head.name)
        if topic is None:
            return None
        waiter = log.waiter_of(topic)
        if not waiter.gathers(topic) or (topic.config.durable and not waiter.is_quick):
            return None
        gathered = waiter.gathered(topic, self._on_answer)
        if gathered not in self._unanswered:
            self._unanswered.append(gathered)
        records_max = _SMALL_RECORDS if "accept-encoding" in head.headers else _MANY_RECORDS
        return head, head.content_length, records_max, gathered.gathering, gathered.writers

    def _has_room(self, head: Head) -> bool:
        """Tell whether all regulars could write at once and no limit would be met."""
        assert head.caller is not None
        return head.caller.requests + len(self._members) <= self._app.inflight_max

    def _write(self) -> None:
        log = self._app.log
        assert log is not None
        for gathered in self._unanswered:
            log.waiter_of(gathered.topic).expect_gathered(len(gathered.writers))
        self._end_turn()
        late, self._unanswered = self._unanswered, []
        for gathered in late:  # they wait for more than this turn
            self._send_home(gathered)

    def _answer(self, gathered: Gathered, ticket: Append | None, error: TopicsError | None) -> None:
        app = self._app
        self._unanswered.remove(gathered)
        seconds = app.clock.monotonic_s() - self._started_s
        if ticket is None or error is not None or seconds > app.slow_s:
            self._send_home(gathered)
            answer_gathered(gathered, ticket, error)
            return
        writers = gathered.writers
        _, (_, head) = writers[0]
        try:
            short = send_answers(
                writers, head_end=app.date_line, **answer_parts(ticket, seconds * 1000)
            )
        except Exception:
            for _, (connection, _) in writers:  # what comes next would pass for this answer
                connection.abort()
            raise
        for connection, rest in short:
            app.guard(connection, partial(connection.send_rest, rest))
        app.metrics.latency_of(head.route, 200).observe(seconds * 1e6, times=len(writers))

    def _send_home(self, gathered: Gathered) -> None:
        """Let writes be answered as others are, by exchanges of their connections."""
        gathered.writers = [
            (count, connection.expect(head, self._started_s))
            for count, (connection, head) in gathered.writers
        ]
        gathered.answer = answer_gathered

    def _pass_on(self, others: list[tuple["Http1Connection", bytes]]) -> None:
        for connection, data in others:
            self._app.guard(connection, partial(connection.take_other, data))
        self._end_turn()
        for connection, _ in others:
            connection.leave_unless_at_rest()

    def _end_turn(self) -> None:
        try:
            self._app.take_turn()
        except Exception as bug:  # noqa: BLE001 - the border: who was read from must not stay here
            self._report("a turn failed", bug)

    def _report(self, message: str, bug: Exception) -> None:
        self._app.loop.call_exception_handler({"message": message, "exception": bug})
