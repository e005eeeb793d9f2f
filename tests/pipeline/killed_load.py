"""A bulk load that stops at a stage, says so, and waits to be killed.

    python -m tests.pipeline.killed_load URL TOPIC PATH STAGE FOLDER

The file FOLDER/reached appears when the stage is reached. `attaching` waits for nobody.
"""

import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from topics.kernel import Columns
from topics.model.uploads import UploadState
from topics.pipeline import build_session
from topics.pipeline.jobs import bulk_load as job
from topics.pipeline.jobs.bulk_load import LoadOptions, Share, Work, bulk_load
from topics.pipeline.jobs.job import JobRun
from topics.pipeline.load_input import LoadInput
from topics.pipeline.server import Server

STAGES: Final = ("counting", "building", "built", "attaching", "attached")
PATIENCE_S: Final = 120.0
SEGMENT_BYTES: Final = 100_000
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "OFF",
}


def main() -> None:
    url, topic, path, stage, folder = sys.argv[1:]
    spark = build_session(app_name="topics killed load", master="local[2]", settings=SETTINGS)
    _stop_at(stage, folder)
    given = LoadInput(format="jsonl", path=path, tag="n")
    options = LoadOptions(url=url, topic=topic, input=given, segment_bytes=SEGMENT_BYTES)
    with JobRun("bulk-load") as run:
        bulk_load(spark, options, run)


def _stop_at(stage: str, folder: str) -> None:
    if stage == "building":
        job._work = in_the_middle(lambda: reach(folder))
        return
    name = "begin_upload" if stage == "counting" else "attach"
    call = getattr(Server, name)

    def stopping(self: Server, *given: Any) -> Any:  # noqa: ANN401 - handed on
        if stage == "attached":
            call(self, *given)
        reach(folder, wait=stage != "attaching")
        return call(self, *given)

    setattr(Server, name, stopping)


def in_the_middle(happens: Callable[[], None]) -> Callable[..., Work]:
    """Return what makes the work of a task, during which something happens.

    By then the first segments have their names, and others are missing.
    """
    make_work = job._work

    def make(upload: UploadState, shares: dict[int, Share], **given: Any) -> Work:  # noqa: ANN401 - handed on
        work = make_work(upload, shares, **given)

        def interrupted(found: Iterable[Columns]) -> Iterable[Columns]:
            for number, columns in enumerate(found):
                if number == 2:
                    happens()
                yield columns

        return lambda number, found: work(number, interrupted(found))

    return make


def reach(folder: str, *, wait: bool = True) -> None:
    Path(folder, "reached").touch()
    if wait:
        threading.Event().wait(PATIENCE_S)


if __name__ == "__main__":
    main()
