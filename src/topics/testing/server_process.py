"""A real server in a process of its own: started, waited for, killed, told to stop, started again.

`ServerProcess` runs `python -m topics serve` on a directory and a free port of the loopback
interface. Settings and keys go in through the environment, so no key shows up in a list of
processes. What the server says on stderr is kept for messages.
"""

import http.client
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

from topics.closing import Closing

START_DEADLINE_S = 30.0
STOP_DEADLINE_S = 30.0
WAL_FILE_BYTES = 4 << 20  # preallocated four times over; a run of tests has a hundred servers
SAID_CHARACTERS = 4_000
_LISTENS = re.compile(rb"http://127\.0\.0\.1:(\d+)")
_SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120 - plain strings, no disk is touched


class ServerDidNotStart(RuntimeError):
    """The process ended, or was not ready in time."""

    def __init__(self, *, returncode: int | None, said: str) -> None:
        super().__init__(f"the server did not start (exit {returncode}): {said}")
        self.returncode = returncode
        self.said = said


class ServerProcess(Closing):
    """One server on one directory; it keeps its port from life to life."""

    def __init__(
        self,
        data_dir: str,
        *,
        settings: dict[str, str] | None = None,
        keys: str | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.port = 0
        self._keys = keys
        self._environment = _environment(settings or {}, keys)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this object
        self._child: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def said(self) -> str:
        """The end of what the server wrote to stderr."""
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")[-SAID_CHARACTERS:]

    def start(self) -> None:
        """Start it and return when `/v0/ready` says 200."""
        command = [sys.executable, "-m", "topics", "serve"]
        command += ["--data-dir", self.data_dir, "--port", str(self.port)]
        self._stderr.seek(0, os.SEEK_END)
        self._child = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=self._environment,
            start_new_session=True,  # Ctrl-C is for us alone
        )
        self._listener = threading.Thread(target=self._listen, args=(self._child,), daemon=True)
        self._has_port = threading.Event()
        self._listener.start()
        deadline = time.monotonic() + START_DEADLINE_S
        if not self._has_port.wait(START_DEADLINE_S) or not self._wait_until_ready(deadline):
            returncode = self._child.poll()
            said = self.said
            self.close()
            raise ServerDidNotStart(returncode=returncode, said=said)

    def kill9(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        """Ask it to stop, wait, and return its exit code."""
        return self._end(signal.SIGTERM)

    def send_signal(self, number: signal.Signals) -> None:
        assert self._child is not None
        self._child.send_signal(number)

    def wait(self) -> int:
        """Return the exit code when the process has ended."""
        assert self._child is not None
        returncode = self._child.wait(STOP_DEADLINE_S)
        self._listener.join()
        assert self._child.stdout is not None
        self._child.stdout.close()
        return returncode

    def restart(self) -> None:
        """Start again on the same directory and the same port."""
        if self._child is not None and self._child.poll() is None:
            self.terminate()
        self.start()

    def close(self) -> None:
        """Leave no process behind."""
        if self._child is not None and self._child.poll() is None:
            self.kill9()
        elif self._child is not None:
            self.wait()
        self._stderr.close()

    def _end(self, number: signal.Signals) -> int:
        self.send_signal(number)
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.send_signal(signal.SIGKILL)
            self.wait()
            raise

    def _listen(self, child: subprocess.Popen[bytes]) -> None:
        """Read stdout to its end, so that the server never waits for us."""
        assert child.stdout is not None
        for line in child.stdout:
            if (found := _LISTENS.search(line)) and not self._has_port.is_set():
                self.port = int(found[1])
                self._has_port.set()
        self._has_port.set()

    def _wait_until_ready(self, deadline: float) -> bool:
        assert self._child is not None
        while self._child.poll() is None and time.monotonic() < deadline:
            if self.port and self._is_ready():
                return True
            time.sleep(0.005)
        return False

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5.0)
        headers = {}
        if self._keys:
            headers["Authorization"] = f"Bearer {self._keys.partition(',')[0].partition(':')[0]}"
        try:
            connection.request("GET", "/v0/ready", headers=headers)
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def _environment(settings: dict[str, str], keys: str | None) -> dict[str, str]:
    """Return ours without the settings of somebody else's server."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}  # noqa: TID251 - a child needs PATH and its like
    ours["PYTHONPATH"] = _SOURCE
    ours["PYTHONUNBUFFERED"] = "1"
    ours["TOPICS_WAL_FILE_BYTES"] = str(WAL_FILE_BYTES)
    ours.update(settings)
    if keys is not None:
        ours["TOPICS_API_KEYS"] = keys
    return ours
