"""kill -9 of the driver of a lake, a process of its own: every record once all the same."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.pipeline.feed import HANG_S, Feed, wait_until
from tests.pipeline.java import needs_java

from topics.pipeline.lake.log import RAW, LakeLog
from topics.pipeline.lake.tables import table_files

pytestmark = [pytest.mark.crash, needs_java]
ROOT = Path(__file__).parents[2]


@contextmanager
def driver(feed: Feed, lake: str, *flags: str) -> "Iterator[subprocess.Popen[bytes]]":
    """Run the job in a process of its own; kill it at the end, with all it has started."""
    command = [sys.executable, "-m", "topics", "pipeline", "lake", "--once", "--lake", lake]
    command += ["--url", feed.url, "--topics", feed.topic, "--master", "local[1]", *flags]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):  # all of it has ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def seqs(lake: str, table: str) -> list[int]:
    """Read what counts now, as anyone with Parquet would."""
    files = [
        pq.read_table(file, columns=["seq"], partitioning=None) for file in table_files(lake, table)
    ]
    return sorted(seq for file in files for seq in file["seq"].to_pylist())


def test_a_driver_that_is_killed_between_batches_leaves_a_lake_that_is_exact(
    feed: Feed, tmp_path: Path
) -> None:
    feed.number(600)
    lake = str(tmp_path / "lake")
    log = LakeLog(lake)
    with driver(feed, lake, "--max-records", "20") as first:
        wait_until(
            lambda: log.load().version >= 2 or first.poll() is not None,
            "three commits of the driver",
            deadline_s=HANG_S,
        )
        assert first.poll() is None, "it ended by itself"
    reached = seqs(lake, RAW)
    assert reached == list(range(1, len(reached) + 1)), "a reader sees whole batches, in order"
    assert len(reached) % 20 == 0
    assert len(reached) < 600, "it was killed before its end"
    with driver(feed, lake) as again:
        assert again.wait(HANG_S) == 0
    assert seqs(lake, RAW) == seqs(lake, feed.topic) == list(range(1, 601))
