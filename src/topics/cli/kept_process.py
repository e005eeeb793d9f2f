"""A child that is started again when it fails, and that ends when its standard input does.

Keeps: it ends with this process, however this one ends: it reads a pipe of which this process alone
holds the other end. A child that ends by itself, or that refuses its arguments, is left alone.
"""

import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from topics.cli.exit_codes import OK, USAGE
from topics.clock import Clock, SystemClock

END_DEADLINE_S = 20.0
"""How long the child may take to end its work; killed, it must lose nothing either."""
PAUSE_S = 5.0
PAUSE_MAX_S = 300.0
STEADY_S = 600.0
"""A child that ran for so long has got over its failures: the next pause is short again."""


class KeptProcess:
    """A command; what it says goes to a file, what becomes of it to `tell`."""

    def __init__(
        self,
        command: Sequence[str],
        said: Path,
        *,
        tell: Callable[[str], None],
        pause_s: float = PAUSE_S,
        clock: Clock | None = None,
    ) -> None:
        self._command = command
        self._said = said
        self._tell = tell
        self._pause_s = pause_s
        self._clock = clock or SystemClock()
        self._ending = threading.Event()
        self._lock = threading.Lock()
        said.write_bytes(b"")
        self._child = self._start()
        threading.Thread(target=self._keep, name="topics-kept-process", daemon=True).start()

    def end(self) -> None:
        """End the child, and start none after it."""
        with self._lock:
            self._ending.set()
        _close_input(self._child)
        try:
            self._child.wait(END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _start(self) -> "subprocess.Popen[bytes]":
        # A session of its own: Ctrl-C on the terminal is for us, and we pass it on in our order.
        with self._said.open("ab") as said:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def _keep(self) -> None:
        pause_s = self._pause_s
        while True:
            started_s = self._clock.monotonic_s()
            code = self._child.wait()
            if self._ending.is_set():
                return
            if code in (OK, USAGE):
                self._tell(f"ended with code {code}: see {self._said}")
                return
            if self._clock.monotonic_s() - started_s > STEADY_S:
                pause_s = self._pause_s
            self._tell(f"failed with code {code}, starts again in {pause_s:g} s: see {self._said}")
            if self._ending.wait(pause_s):
                return
            with self._lock:
                if self._ending.is_set():
                    return
                _close_input(self._child)
                self._child = self._start()
            pause_s = min(2 * pause_s, PAUSE_MAX_S)


def _close_input(child: "subprocess.Popen[bytes]") -> None:
    assert child.stdin is not None
    child.stdin.close()
