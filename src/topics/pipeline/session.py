"""A Spark session that knows `format("topics")`, and what is wrong when it cannot."""

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from topics.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN: Final = 17
PUSH_DOWN: Final = "spark.sql.python.filterPushdown.enabled"
SETTINGS: Final = {
    PUSH_DOWN: "true",
    # The default forks about twenty processes a micro-batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}


def build_session(
    *, app_name: str = "topics", master: str | None = None, settings: dict[str, str] | None = None
) -> "SparkSession":
    """Start a session with the settings that make small batches cheap, and register the format."""
    check_spark()
    _set_python()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - optional, checked just above

    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    for name, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(name, value)
    return register(builder.getOrCreate())


def check_spark() -> None:
    """Say what is missing for Spark on this machine, if anything is; starts nothing."""
    _check_pyspark()
    _check_java()


def register(spark: "SparkSession") -> "SparkSession":
    """Make `format("topics")` known to a session, and check that its workers can run it."""
    _check_pyspark()
    from topics.pipeline.source import TopicsSource  # noqa: PLC0415 - needs pyspark

    spark.conf.set(PUSH_DOWN, "true")
    spark.dataSource.register(TopicsSource)
    _check_worker(spark)
    return spark


def _check_pyspark() -> None:
    try:
        import pyarrow  # noqa: F401, ICN001, PLC0415 - is it there?
        import pyspark  # noqa: PLC0415 - is it there?
    except ImportError as error:
        raise ConfigError(f"{error.name} is missing: pip install topics-log[spark]") from None
    major_minor = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if major_minor < (4, 3):
        raise ConfigError(f"pyspark is {pyspark.__version__}, topics needs 4.3: upgrade it")


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")  # noqa: TID251 - Spark itself looks there
    java = f"{home}/bin/java" if home else "java"
    if shutil.which(java) is None:
        raise ConfigError(
            f"Spark needs Java {JAVA_MIN} or newer, and there is no `{java}`: install a JRE, or "
            "set JAVA_HOME to one"
        )
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA_MIN:
        first = said.partition("\n")[0]
        raise ConfigError(
            f"Spark needs Java {JAVA_MIN} or newer, and {java} is {first or 'no Java'}: install "
            "another, or set JAVA_HOME to one"
        )


def _set_python() -> None:
    """Workers run this Python unless told otherwise: another one lacks this package."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(name, sys.executable)  # noqa: TID251 - Spark reads it there


def _check_worker(spark: "SparkSession") -> None:
    """Ask one worker for its Python and our package: else the first query fails in a riddle."""
    import topics  # noqa: PLC0415 - the package as the driver sees it

    def probe(_: object) -> tuple[str, str]:
        import sys  # noqa: PLC0415 - runs in a worker

        import topics.pipeline.source  # noqa: PLC0415 - runs in a worker

        return f"{sys.version_info[0]}.{sys.version_info[1]}", topics.__version__

    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # noqa: PLC0415 - comes with pyspark, untyped
    from pyspark.errors import PySparkException  # noqa: PLC0415

    context = getattr(spark, "_sc", None)
    if context is None:
        return  # Spark Connect: the server's workers are out of reach from here
    try:
        python, version = context.parallelize([0], 1).map(probe).collect()[0]
    except (PySparkException, Py4JJavaError, OSError) as error:
        raise ConfigError(
            "a Spark worker cannot run topics: install topics-log[spark] for the Python that "
            "workers use, and set PYSPARK_PYTHON to it "
            f"(here {sys.executable}): {_reason(str(error))}"
        ) from error
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if (python, version) != (ours, topics.__version__):
        raise ConfigError(
            f"workers have Python {python} with topics {version}, the driver has {ours} with "
            f"{topics.__version__}: make them the same"
        )


def first_line(error: Exception) -> str:
    """Return what an error of Spark says: our own message if one of ours is behind it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("topics.errors.")]
    return ours[-1].partition(": ")[2] if ours else (lines or ["the query failed"])[0]


def _reason(text: str) -> str:
    """Find in two stacks, of Python and of Java, the line that tells."""
    lines = [line.strip() for line in text.splitlines()]
    found = [line for line in lines if re.match(r"(Caused by: )?[\w.]*(Error|Exception): ", line)]
    return next((line for line in found if "Cannot run program" in line), [text, *found][-1])
