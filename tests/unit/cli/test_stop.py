"""How a job of the pipeline is asked to end."""

import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "src"
PROGRAM = """
import fcntl, sys, termios, time
from topics.cli.spark import Stop

stop = Stop()
stop.on_end_of_stdin()
deadline_s = time.monotonic() + 30
while time.monotonic() < deadline_s:  # until its thread has taken the byte, and waits for more
    if fcntl.ioctl(0, termios.FIONREAD, bytes(4)) == bytes(4):
        break
sys.exit(3 if not stop() else 4)
"""


def test_a_job_that_ends_by_itself_does_not_stumble_over_its_stdin() -> None:
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdin is not None
        assert child.stderr is not None
        child.stdin.write(b"x")
        child.stdin.flush()
        said = child.stderr.read()  # until it has ended: its stdin stays open all the time
        assert (child.wait(), said) == (3, b"")
