"""One connection of the line protocol: lines in, answers out in the order of the lines.

A run of PRODUCEs, or of COMMITs, is under way together and shares syncs; whatever comes behind
another command waits for its answer, since it may rely on what that does.
Keeps: nothing of a connection grows without bound: the line it is sending, its pipeline, and what
it has not read yet. No key is ever written back. Whoever does not begin with an envelope is no
client of ours, and nothing that it says is done: a browser can be made to send lines here, but not
without the head of an HTTP request before them.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import cast

from topics.broker.commands import AUTH, COMMANDS, code_of
from topics.broker.desk import Caller, Desk, Work
from topics.broker.line import (
    MAX_LINE_BYTES,
    NO_ENVELOPE,
    LineBuffer,
    Refusal,
    Request,
    TooLong,
    format_ok,
    parse_request,
    refuse_too_long,
)
from topics.descriptors import peer_of
from topics.errors import StorageError, TopicsError, Unauthorized

MAX_PIPELINED = 128
"""Requests under way on one connection; more wait in the kernel."""
MAX_TAKEN_A_TURN = 16
"""Then the other connections have their turn."""
MAX_HELD_BYTES = 64 * 1024
"""Read behind a request that waits; more stays in the kernel."""
MAX_STRANGER_LINE_BYTES = 4096
"""Until a key was shown."""


class _Answer:
    """The place of one answer in the order."""

    __slots__ = ("command", "id", "line")

    def __init__(self, request_id: str, command: str) -> None:
        self.id = request_id
        self.command = command
        self.line: bytes | None = None


class Session(asyncio.Protocol):
    """Owns one socket."""

    def __init__(self, desk: Desk, *, on_gone: Callable[["Session"], None]) -> None:
        self._desk = desk
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.peer = ""
        self._caller: Caller | None = desk.keys.anonymous if desk.keys.is_open else None
        self._lines = LineBuffer(MAX_LINE_BYTES if self._caller else MAX_STRANGER_LINE_BYTES)
        self._has_begun = False
        """Its first line is whole, and an envelope."""
        self._held: Request | None = None
        """Read, and waiting for the answers before it."""
        self._answers: deque[_Answer] = deque()
        """Asked and not yet sent, in order."""
        self._alone: tuple[_Answer, asyncio.Task[str]] | None = None
        """Nothing is taken while it runs."""
        self._turn_comes = False
        self._writing_paused = False
        self._ending = False
        """No more lines are taken; it closes when all are answered."""
        self._half_closed = False
        # For the sweep of timeouts.
        self._since_s = desk.clock.monotonic_s()
        """When it came, or sent, or took something last."""
        self._unread_bytes = 0
        """What it had not taken when that was looked at last."""

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self.peer = peer_of(transport)
        # A quiet peer is welcome as long as it is there.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - gone is gone
        self._transport = None
        self._answers.clear()
        self._held = None
        self._lines = LineBuffer(0)
        if self._alone is not None:
            self._alone[1].cancel()
        self._on_gone(self)

    def data_received(self, data: bytes) -> None:
        self._note_time()
        self._lines.feed(data)
        self._advance()

    def eof_received(self) -> bool:
        """Answer what was asked before a half-close, then go."""
        self._half_closed = True
        self._schedule()
        return True

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._note_time()
        self._regulate()

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._schedule()

    # For the listener.

    def check_patience(self, now_s: float) -> None:
        """Hang up on a peer that keeps us waiting too long."""
        if self._transport is None:
            return
        unread_bytes = self._transport.get_write_buffer_size()
        if unread_bytes < self._unread_bytes:  # slow, but it reads
            self._note_time()
        self._unread_bytes = unread_bytes
        patience_ms = self._patience_ms
        if patience_ms is not None and now_s - self._since_s > patience_ms / 1000:
            self.abort()

    @property
    def _patience_ms(self) -> int | None:
        """How long a peer may take for what it does now: a key, to read its answers, a line."""
        config = self._desk.config
        if self._caller is None:
            return config.head_timeout_ms
        if self._writing_paused or self._transport is None or self._transport.is_closing():
            return config.slow_reader_ms
        if self._lines.is_inside_line and not self._answers and self._held is None:
            return config.idle_timeout_ms
        return None

    def _note_time(self) -> None:
        if self._caller is not None:  # a stranger gains no time by talking
            self._since_s = self._desk.clock.monotonic_s()

    @property
    def since_s(self) -> float:
        return self._since_s

    @property
    def is_at_rest(self) -> bool:
        """Nothing was asked that is not answered, and no part of a line is here."""
        return not (
            self._answers
            or self._held
            or self._alone
            or self._ending
            or self._writing_paused
            or self._lines.is_inside_line
        )

    def end(self) -> None:
        self.drain()

    def drain(self) -> None:
        """Take no more lines, and close when those taken are answered."""
        self._ending = True
        self._held = None
        self._schedule()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # Requests.

    def _schedule(self) -> None:
        if not self._turn_comes:
            self._turn_comes = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_comes = False
        self._flush()
        self._advance()
        if self._transport is None or self._answers or self._turn_comes:
            return
        if self._ending or (self._half_closed and not self._writing_paused):
            self._transport.close()

    def _advance(self) -> None:
        """Take whole lines, a share of them in each turn of the loop."""
        if self._turn_comes:
            return
        for _ in range(MAX_TAKEN_A_TURN):
            if not self._may_take() or not self._take_one():
                break
        else:
            self._schedule()
        self._flush()
        self._regulate()

    def _may_take(self) -> bool:
        return (
            self._transport is not None
            and self._alone is None
            and not self._ending
            and not self._writing_paused
            and len(self._answers) < MAX_PIPELINED
        )

    def _take_one(self) -> bool:
        request, self._held = self._held or self._next_request(), None
        if isinstance(request, Request):
            if self._must_wait(request):
                self._held = request
                return False
            self._begin(request)
        elif request is not None:
            answer = _Answer(request.id, "")
            answer.line = request.format()
            self._answers.append(answer)
        return request is not None

    def _must_wait(self, request: Request) -> bool:
        """Tell whether something else is still to be answered."""
        if self._answers and self._answers[-1].command != request.command:
            self._flush()
        return bool(self._answers) and self._answers[-1].command != request.command

    def _next_request(self) -> Request | Refusal | None:
        if not self._has_begun and not self._lines.may_be_envelope:
            self.drain()
            return NO_ENVELOPE
        line = self._lines.take()
        if line is None:
            return None
        self._has_begun = True
        if isinstance(line, TooLong):
            return refuse_too_long(line, self._lines.limit_bytes)
        return parse_request(line)

    def _begin(self, request: Request) -> None:
        answer = _Answer(request.id, request.command)
        self._answers.append(answer)
        try:
            work = self._start(request)
        except TopicsError as error:
            answer.line = self._refuse(answer, error)
            return
        if work is None:
            answer.line = Refusal(request.id, "UNKNOWN_COMMAND", "no such command").format()
        elif isinstance(work, str):
            answer.line = format_ok(request.id, work)
        elif isinstance(work, asyncio.Future):
            work.add_done_callback(partial(self._settle, answer))
        else:
            task = self._loop.create_task(work)
            self._alone = answer, task
            task.add_done_callback(partial(self._settle, answer))

    def _start(self, request: Request) -> Work | None:
        if request.command == AUTH:
            return self._authenticate(request.args)
        if self._caller is None:
            raise Unauthorized("show a key first: V1|<id>|AUTH|<key>")
        command = COMMANDS.get(request.command)
        return None if command is None else command(self._desk, self._caller, request.args)

    def _authenticate(self, key: str) -> str:
        keys = self._desk.keys
        self._caller = keys.anonymous if keys.is_open else keys.identify(key.strip())
        self._lines.limit_bytes = MAX_LINE_BYTES
        return ""

    # Answers.

    def _settle(self, answer: _Answer, work: asyncio.Future[str]) -> None:
        if self._alone is not None and self._alone[0] is answer:
            self._alone = None
        if work.cancelled():
            return
        error = work.exception()
        if error is None:
            answer.line = format_ok(answer.id, work.result())
        elif isinstance(error, TopicsError):
            answer.line = self._refuse(answer, error)
        else:
            self.abort()  # a fault of ours: the loop reports it, and nobody waits for an answer
            raise error
        self._schedule()

    def _refuse(self, answer: _Answer, error: TopicsError) -> bytes:
        if isinstance(error, StorageError):
            self._desk.report(error)
        return Refusal(answer.id, code_of(error), str(error)).format()

    def _flush(self) -> None:
        """Send, at once, every answer whose turn it is."""
        ready: list[bytes] = []
        while self._answers and (line := self._answers[0].line) is not None:
            ready.append(line)
            self._answers.popleft()
        if ready and self._transport is not None:
            self._note_time()
            self._transport.write(b"".join(ready))

    def _regulate(self) -> None:
        """Read on while little is held, or the line that is held is the next to be taken."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        is_next = self._may_take() and self._held is None and not self._turn_comes
        wanted = is_next or self._lines.held_bytes <= MAX_HELD_BYTES
        if wanted and not transport.is_reading():
            transport.resume_reading()
        elif not wanted and transport.is_reading():
            transport.pause_reading()
