"""A program of `examples/`, run as its README says, with a server of the test's."""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

from topics.closing import Closing

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0


class Program(Closing):
    """One process; what it prints is waited for line by line."""

    def __init__(self, path: str, *arguments: str, url: str, key: str | None = None) -> None:
        ours = {name: text for name, text in os.environ.items() if not name.startswith("TOPICS_")}
        ours |= {"PYTHONPATH": str(ROOT / "src"), "TOPICS_URL": url}
        if key is not None:
            ours["TOPICS_TOKEN"] = key
        self._child = subprocess.Popen(
            [sys.executable, str(ROOT / "examples" / path), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=ours,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def expect(self, pattern: str) -> re.Match[str]:
        """Return the first line to come that fits."""
        passed: list[str] = []
        while True:
            try:
                line = self._lines.get(timeout=DEADLINE_S)
            except queue.Empty:
                raise AssertionError(f"no {pattern!r} after {passed}") from None
            if found := re.search(pattern, line):
                return found
            passed.append(line)

    def finish(self) -> int:
        """Wait until it ends by itself; return its exit code."""
        return self._child.wait(DEADLINE_S)

    def stop(self) -> int:
        """Stop it as an operator would; return its exit code."""
        self._child.send_signal(signal.SIGTERM)
        return self.finish()

    def kill9(self) -> None:
        self._child.kill()
        self._child.wait(DEADLINE_S)

    def close(self) -> None:
        if self._child.poll() is None:
            self.kill9()
        self._reader.join()
        assert self._child.stdout is not None
        self._child.stdout.close()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._lines.put(line.rstrip("\n"))
