"""A Spark session for the time of one command, and how a command is asked to end."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from topics.cli import exit_codes
from topics.cli.job import DEFAULT_MASTER
from topics.errors import ConfigError, PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END_GRACE_S = 10.0
"""How long a batch may take to end when nobody waits for it; cut off, it loses nothing either."""
LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}
"""On one machine nothing listens beyond it, and a shuffle in many parts would only cost."""


def check_installed() -> None:
    """Refuse with one line what cannot run here: no package, no Java."""
    try:
        import h11  # noqa: F401, PLC0415 - is it there?

        from topics.pipeline.session import check_spark  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"the pipeline is not installed ({missing.name}): "
            "run pip install 'topics-log[spark,cli]'"
        ) from missing
    check_spark()


@contextmanager
def open_spark(name: str, master: str) -> Iterator["SparkSession"]:
    """Start Spark, and stop it at the end; its errors become ours: one line, no trace of a JVM."""
    check_installed()
    from pyspark.errors import PySparkException  # noqa: PLC0415 - an extra

    from topics.pipeline.session import build_session, first_line  # noqa: PLC0415

    given = None if _is_submitted() and master == DEFAULT_MASTER else master
    settings = {"spark.log.level": "OFF", "spark.sql.session.timeZone": "UTC"}
    if given is not None and given.startswith("local"):
        settings |= LOCAL
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    leave_errors_to_us()
    spark = build_session(app_name=f"topics {name}", master=given, settings=settings)
    try:
        yield spark
    except PySparkException as error:
        raise PipelineError(first_line(error)) from error
    finally:
        spark.stop()


def leave_errors_to_us() -> None:
    """Keep pyspark from logging an error with all its traces before we tell it in a line."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - an extra

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _is_submitted() -> bool:
    """Tell whether spark-submit started us: then the master is what it was told."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


class Stop:
    """Asked to end: by Ctrl-C, by SIGTERM, or by the end of stdin. A second Ctrl-C is not asked."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def __call__(self) -> bool:
        return self._event.is_set()

    def on_signals(self) -> None:
        """Listen from now on; Spark sets a handler of its own when it starts."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._ask())

    def on_end_of_stdin(self) -> None:
        """End when whoever holds the other end of stdin has ended, however it did."""

        def wait() -> None:
            # Not by sys.stdin.buffer: this thread would hold its lock, and an exit then aborts.
            while os.read(sys.stdin.fileno(), 1):
                pass
            self._event.set()
            # Whoever started us may be gone with the server that a batch is waiting for.
            threading.Event().wait(END_GRACE_S)
            os._exit(exit_codes.ERROR)

        threading.Thread(target=wait, name="topics-stdin", daemon=True).start()

    def _ask(self) -> None:
        if self._event.is_set():
            raise KeyboardInterrupt
        self._event.set()
