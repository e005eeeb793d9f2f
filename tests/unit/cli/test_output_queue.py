"""What a server says, when nobody reads it, reads late, or has gone."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import pytest

from topics.cli.output_queue import LINE_OVERHEAD_BYTES, OutputQueue, queued_output
from topics.testing.manual_clock import ManualClock

DEADLINE_S = 30.0
PIPE_BYTES = 1 << 20
LINE = b"x" * 99 + b"\n"


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Return both ends of a pipe that is full: nobody has read from it yet."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"old\n" * 1024)
    except BlockingIOError:
        os.set_blocking(writer, True)
    yield reader, writer
    os.close(reader)
    os.close(writer)


def read_lines(reader: int, *, upto: bytes) -> list[bytes]:
    content = b""
    while upto not in content or not content.endswith(b"\n"):
        content += os.read(reader, PIPE_BYTES)
    return content.removeprefix(b"old\n" * content.count(b"old\n")).splitlines()


def test_nobody_waits_for_a_reader_and_he_hears_how_much_he_missed(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    room = 10 * (len(LINE) + LINE_OVERHEAD_BYTES)
    queue = OutputQueue(writer, ManualClock(), queued_bytes_max=room)
    for _ in range(1_000):
        queue.put(LINE)
    assert not queue.close(timeout_s=0.0)
    # What the thread has taken already does not count.
    assert 1_000 - 20 <= queue.dropped <= 1_000 - 10
    lines = read_lines(reader, upto=b"log_lines_dropped")
    assert lines[:-1] == [LINE.strip()] * (1_000 - queue.dropped)
    notice = json.loads(lines[-1])
    assert (notice["event"], notice["dropped"]) == ("log_lines_dropped", queue.dropped)
    assert queue.close()


def test_lines_that_are_read_arrive_in_order_and_all_of_them() -> None:
    reader, writer = os.pipe()
    queue = OutputQueue(writer, ManualClock())
    for number in range(100):
        queue.put(b"%d\n" % number)
    assert queue.close()
    assert os.read(reader, PIPE_BYTES) == b"".join(b"%d\n" % number for number in range(100))
    for end in (reader, writer):
        os.close(end)


def test_a_reader_who_has_gone_stops_nobody() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    queue = OutputQueue(writer, ManualClock())
    queue.put(LINE)
    assert queue.close()
    os.close(writer)


def test_streams_are_as_they_were_afterwards(
    capfd: pytest.CaptureFixture[str],
) -> None:
    streams = sys.stdout, sys.stderr
    with queued_output() as queues:
        assert len(queues) == 2
        sys.stdout.write("said\n")
        sys.stderr.write("töld\n")
        assert (sys.stdout, sys.stderr) != streams
    assert (sys.stdout, sys.stderr) == streams
    assert capfd.readouterr() == ("said\n", "töld\n")


def test_a_server_whose_stderr_is_full_and_unread_serves_and_stops(
    pipe: tuple[int, int], tmp_path: Path
) -> None:
    _, writer = pipe
    command = [sys.executable, "-m", "topics", "serve", "--port", "0", "--data-dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writer) as child:
        watchdog = Timer(DEADLINE_S, child.kill)
        watchdog.start()
        assert child.stdout is not None
        # It says so after the line for the log, and is asked to stop with that one unread.
        assert any(line.startswith(b"ready with") for line in child.stdout)
        child.terminate()
        assert child.wait() == 0
        watchdog.cancel()
