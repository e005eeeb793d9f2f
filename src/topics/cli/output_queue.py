"""What a server says, when nobody reads it: a queue in front of stdout and stderr.

A pipe that nobody reads is full after 64 KiB, and then whoever writes to it waits. Here that is a
thread that does nothing else: the event loop, and whatever else says something, only queues.
Keeps: a write never waits; so much is queued at most, and how many lines had no room is said as
soon as there is somebody to tell.
"""

import io
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, TextIO, cast

import msgspec

from topics.clock import Clock, SystemClock
from topics.limits import KIB, MIB

QUEUED_BYTES_MAX = MIB
LINE_OVERHEAD_BYTES = 100
WRITE_BYTES = 64 * KIB
CLOSE_TIMEOUT_S = 2.0
"""So long a stop waits for a reader of the last lines."""


class OutputQueue:
    """The lines on their way to one descriptor, and the thread that writes them."""

    def __init__(
        self, descriptor: int, clock: Clock, *, queued_bytes_max: int = QUEUED_BYTES_MAX
    ) -> None:
        self._descriptor = descriptor
        self._clock = clock
        self._queued_bytes_max = queued_bytes_max
        self._lines: deque[bytes] = deque()
        self._queued_bytes = 0
        self.dropped = 0
        """Lines that had no room, since the start."""
        self._told = 0
        """So many of them the reader knows of."""
        # A destructor may say something while its thread is in here.
        self._lock = threading.RLock()
        self._has_news = threading.Event()
        self._is_done = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="topics-output", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Have a line written, or drop it where too many wait."""
        size = len(line) + LINE_OVERHEAD_BYTES
        with self._lock:
            if self._queued_bytes + size > self._queued_bytes_max:
                self.dropped += 1
                return
            self._queued_bytes += size
            self._lines.append(line)
        self._has_news.set()

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """Write what is queued, if somebody reads it in time; tell whether all was written."""
        self._closing = True
        self._has_news.set()
        return self._is_done.wait(timeout_s)

    def _run(self) -> None:
        while True:
            closing = self._closing  # read before the queue: what came before is written
            self._has_news.clear()
            while content := self._take():
                self._write(content)
            if closing:
                self._is_done.set()
                return
            self._has_news.wait()

    def _take(self) -> bytes:
        """Take lines, as many as one write may have, and what is to be said of dropped ones."""
        taken: list[bytes] = []
        size = 0
        with self._lock:
            while self._lines and size < WRITE_BYTES:
                line = self._lines.popleft()
                self._queued_bytes -= len(line) + LINE_OVERHEAD_BYTES
                size += len(line)
                taken.append(line)
            if not self._lines and self.dropped > self._told:
                taken.append(self._notice(self.dropped - self._told))
                self._told = self.dropped
        return b"".join(taken)

    def _notice(self, dropped: int) -> bytes:
        notice = {"ts": self._clock.now_ms(), "level": "warning", "event": "log_lines_dropped"}
        return msgspec.json.encode({**notice, "dropped": dropped}) + b"\n"

    def _write(self, content: bytes) -> None:
        rest = memoryview(content)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # somebody has made it so that it does not block
                select.select([], [self._descriptor], [])
            except OSError:  # its reader has gone: there is nobody to tell
                return


class _Queued(io.BufferedIOBase):
    """The binary side of a text stream that only queues."""

    def __init__(self, queue: OutputQueue, stream: TextIO) -> None:
        self._queue = queue
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, content: object) -> int:
        line = bytes(content)  # type: ignore[call-overload] # any buffer
        if line:
            self._queue.put(line)
        return len(line)

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()


@contextmanager
def queued_output(clock: Clock | None = None) -> Iterator[list[OutputQueue]]:
    """Let nobody wait who writes to stdout or stderr in here; yield the queues there are.

    A stream that is no file, as in a test, stays as it is. So does, at the end, a queue whose
    reader has not come: what is said after it has to wait for nobody either.
    """
    queues: list[OutputQueue] = []
    replaced: list[tuple[str, TextIO, OutputQueue]] = []
    for name in ("stdout", "stderr"):
        stream: TextIO = getattr(sys, name)
        try:
            descriptor = stream.fileno()
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
        queue = OutputQueue(descriptor, clock or SystemClock())
        queues.append(queue)
        queued = io.TextIOWrapper(
            cast("BinaryIO", _Queued(queue, stream)),
            encoding=stream.encoding,
            errors="backslashreplace",
            write_through=True,
        )
        setattr(sys, name, queued)
        replaced.append((name, stream, queue))
    try:
        yield queues
    finally:
        for name, stream, queue in replaced:
            getattr(sys, name).flush()
            if queue.close():
                setattr(sys, name, stream)
