"""One Spark session for all tests here, and a real server a module with small segments."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from tests.pipeline.feed import Feed

from topics.testing.server_process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "TOPICS_SEGMENT_MAX_EVENTS": "100",
    "TOPICS_CHECKPOINT_MS": "20",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses the session, so that it runs by itself, in one process."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install topics-log[spark]")
    if shutil.which("java") is None:
        pytest.skip("there is no Java on this machine, which Spark needs")
    from topics.pipeline import build_session  # noqa: PLC0415 - needs pyspark, checked above

    with pytest.MonkeyPatch.context() as patch:
        # Workers are processes of their own: they find the package and the tests where we do.
        patch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = build_session(
            app_name="topics tests",
            # `make cluster` names one of its own.
            master=os.environ.get("TOPICS_SPARK_MASTER", "local[2]"),
            settings={
                "spark.ui.enabled": "false",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.session.timeZone": "UTC",
                "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
                "spark.log.level": "OFF",
            },
        )
        yield session
        session.stop()


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    settings = {**SETTINGS, **getattr(request.module, "SETTINGS", {})}
    keys = getattr(request.module, "KEYS", None)
    directory = tmp_path_factory.mktemp("server")
    with ServerProcess(str(directory / "data"), settings=settings, keys=keys) as process:
        yield process


@pytest.fixture
def feed(request: pytest.FixtureRequest, server: ServerProcess) -> Iterator[Feed]:
    """Write to a topic of the test's own."""
    name = request.node.name.partition("[")[0].removeprefix("test_").replace("_", "-")[:60]
    parameters = "".join(c for c in request.node.name.partition("[")[2] if c.isalnum())
    with Feed(server.url, f"{name}{parameters}") as opened:
        yield opened


@pytest.fixture(scope="session")
def reference() -> str:
    return (ROOT / "docs/reference/spark.md").read_text()
