"""kill -9 at every stage of a bulk load: no topic or the whole one, and nothing else stays."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.feed import HANG_S, Feed, wait_until
from tests.pipeline.java import needs_java
from tests.pipeline.killed_load import SEGMENT_BYTES, STAGES, in_the_middle, reach

from topics.pipeline.jobs import bulk_load as job
from topics.pipeline.jobs.bulk_load import LoadOptions, bulk_load
from topics.pipeline.jobs.job import JobRun
from topics.pipeline.load_input import LoadInput
from topics.testing.server_process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

errors = pytest.importorskip("pyspark.errors")
java = pytest.importorskip("py4j.protocol")
pytestmark = pytest.mark.crash

ROOT = Path(__file__).parents[2]
RECORDS = 60_000
QUICK = ("building", "attaching")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("in")
    for file in range(2):
        numbers = range(file * RECORDS // 2, (file + 1) * RECORDS // 2)
        (folder / f"{file}.jsonl").write_text("".join(f'{{"n":{n}}}\n' for n in numbers))
    return str(folder)


def check(server: ServerProcess, feed: Feed) -> bool:
    """Start the server again; tell whether the topic is there, which then is whole."""
    server.kill9()
    server.start()
    found = feed.call("GET", "/v0/topics")["topics"]
    there = feed.topic in [topic["topic"] for topic in found]
    if there:
        assert sorted(r["data"]["n"] for r in feed.records()) == list(range(RECORDS))
    data = Path(server.data_dir)
    assert not list(data.glob("uploads/*"))
    owners = {int(folder.name, 16) for folder in (data / "topics").iterdir()}
    assert owners <= {feed.call("GET", f"/v0/topics/{t['topic']}")["epoch"] for t in found}
    assert not [name for name in data.rglob("*.tmp") if "uploads" in name.parts]
    return there


def load(spark: "SparkSession", feed: Feed, path: str) -> None:
    given = LoadInput(format="jsonl", path=path, tag="n")
    options = LoadOptions(url=feed.url, topic=feed.topic, input=given, segment_bytes=SEGMENT_BYTES)
    with JobRun("bulk-load") as run:
        bulk_load(spark, options, run)


@contextmanager
def started(feed: Feed, path: str, stage: str, folder: Path) -> Iterator[None]:
    """Run a load in a process of its own up to a stage; kill it, Java and workers at the end."""
    command = [sys.executable, "-m", "tests.pipeline.killed_load"]
    with (folder / "said").open("wb") as said:
        driver = subprocess.Popen(
            [*command, feed.url, feed.topic, path, stage, str(folder)],
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    try:
        wait_until(
            lambda: (folder / "reached").exists() or driver.poll() is not None,
            f"a load at {stage}",
            deadline_s=HANG_S,
        )
        assert driver.poll() is None, (folder / "said").read_text()[-2_000:]
        yield
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


@needs_java
@pytest.mark.parametrize(
    "stage",
    # Each costs the start of a Spark: `make test` takes the two in which most happens.
    [s if s in QUICK else pytest.param(s, marks=pytest.mark.slow) for s in STAGES],
)
def test_of_a_load_whose_driver_is_killed_all_is_left_or_nothing(
    stage: str, server: ServerProcess, feed: Feed, path: str, tmp_path: Path
) -> None:
    with started(feed, path, stage, tmp_path):
        staged = list(Path(server.data_dir).glob("uploads/*/*.idx"))
    if stage != "attaching":
        assert bool(staged) is (stage in ("building", "built"))
        assert check(server, feed) is (stage == "attached")
    else:
        check(server, feed)


def test_of_a_load_whose_server_is_killed_while_tasks_build_nothing_is_left(
    spark: "SparkSession",
    server: ServerProcess,
    feed: Feed,
    path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = str(tmp_path)

    def meet() -> None:
        reach(folder, wait=False)
        wait_until(Path(folder, "restarted").exists, "a new server")

    def restart() -> None:
        wait_until((tmp_path / "reached").exists, "a task that builds", deadline_s=HANG_S)
        server.kill9()
        server.start()
        (tmp_path / "restarted").touch()

    monkeypatch.setattr(job, "_work", in_the_middle(meet))
    restarter = threading.Thread(target=restart)
    restarter.start()
    with pytest.raises(errors.PySparkException, match=r"FileMissing|is not there"):
        load(spark, feed, path)
    restarter.join()
    assert not list(Path(server.data_dir).glob("uploads/*"))
    assert not check(server, feed)


def test_of_a_load_whose_worker_is_killed_all_is_left_or_nothing(
    spark: "SparkSession",
    server: ServerProcess,
    feed: Feed,
    path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed = str(tmp_path / "killed")

    def die() -> None:
        with suppress(FileExistsError):
            os.close(os.open(killed, os.O_CREAT | os.O_EXCL))
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(job, "_work", in_the_middle(die))
    done = True
    try:
        load(spark, feed, path)
    except (errors.PySparkException, java.Py4JJavaError):
        # `local[2]` tries no task again, a cluster does.
        done = False
    assert Path(killed).exists()
    assert not list(Path(server.data_dir).glob("uploads/*"))
    assert check(server, feed) is done
