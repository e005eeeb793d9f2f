"""The driver that is tortured: one stream into a lake, one into a topic.

Told by the environment: TORTURE_URL, TORTURE_FOLDER, TORTURE_ONCE (end when all is read).
"""

import os
import threading

from tests.torture_pipeline.names import COPY, SOURCE

from topics.pipeline import build_session
from topics.pipeline.jobs.job import JobRun
from topics.pipeline.jobs.lake import run_lake
from topics.pipeline.lake.entry import TableFormat
from topics.pipeline.lake.query import QueryOptions

PATIENCE_S = 300


def main() -> None:
    url, folder = os.environ["TORTURE_URL"], os.environ["TORTURE_FOLDER"]
    once = os.environ["TORTURE_ONCE"] == "1"
    spark = build_session(
        app_name="topics torture",
        master="local[2,4]",  # a task whose worker was killed is tried again
        settings={
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.log.level": "OFF",
        },
    )
    most = 20_000 if once else 2_000
    frame = (
        spark.readStream.format("topics")
        .options(url=url, topic=SOURCE, startingOffsets="earliest", maxRecordsPerTrigger=str(most))
        .load()
        .select("data")
    )
    writer = frame.writeStream.format("topics").options(url=url, topic=COPY)
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.trigger(availableNow=True).start() if once else writer.start()
    print("running", flush=True)

    def lake() -> None:
        options = QueryOptions(url=url, topics=SOURCE, once=once, interval_ms=100, max_records=most)
        try:
            with JobRun("lake") as run:
                run_lake(spark, f"{folder}/lake", options, run, tables=TableFormat("delta"))
        except BaseException:
            if not once:
                os._exit(3)  # as a supervisor would see it: the driver is gone
            raise

    thread = threading.Thread(target=lake)
    thread.start()
    assert query.awaitTermination(PATIENCE_S) or not once, "the stream did not end"
    thread.join(PATIENCE_S)
    spark.stop()


if __name__ == "__main__":
    main()
