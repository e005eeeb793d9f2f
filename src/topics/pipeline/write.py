"""The sink: each task appends its rows as a producer of its own, exactly once.

Keeps: nothing is undone in `abort`, which Spark may call after a commit; a task that runs again
writes under the same producer and numbers, and so writes nothing twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from topics.errors import OptionError
from topics.pipeline.chunks import cut_chunks
from topics.pipeline.encode import OutRow, check_columns, encode_rows
from topics.pipeline.options import SinkOptions
from topics.pipeline.pace import Pace
from topics.pipeline.server import Server
from topics.pipeline.worker import settle_worker

DEFAULT_SINK_ID = "spark"
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


@dataclass
class TopicsWritten(WriterCommitMessage):
    """What one task appended; `repeated` was there from an earlier try."""

    records: int
    repeated: int


class _Sink:
    """What both kinds of writers share."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("a log is not overwritten: write with mode('append')")
        types = {field.name: field.dataType.simpleString() for field in schema.fields}
        check_columns(types, topic=options.topic)
        self._options = options

    def append(
        self, batches: Iterator[pa.RecordBatch], *, run: str, batch_id: int
    ) -> TopicsWritten:
        """Append all rows of a task; on an executor."""
        settle_worker()
        context = TaskContext.get()
        assert context is not None
        sink_id = self._options.sink_id or DEFAULT_SINK_ID
        producer_id = f"{sink_id}/{run}/{context.partitionId()}"
        server = Server(self._options.url, self._options.token)
        pace = Pace(self._options.records_per_second)
        written = repeated = 0
        try:
            for chunk in cut_chunks(self._rows(batches), self._options, batch_id=batch_id):
                fresh = server.append(chunk.topic, chunk.body(producer_id))
                written += fresh
                repeated += len(chunk.records) - fresh
                pace.wait(fresh)
        finally:
            server.close()
        return TopicsWritten(written, repeated)

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[OutRow]:
        for batch in batches:
            yield from encode_rows(
                batch,
                topic=self._options.topic,
                drop_dead_letter_meta=self._options.drop_dead_letter_meta,
            )


class TopicsWriter(DataSourceArrowWriter):
    """Writes a DataFrame; `run` names this write, or all writes that mean the same."""

    def __init__(
        self, options: SinkOptions, schema: StructType, *, run: str, overwrite: bool
    ) -> None:
        self._sink = _Sink(options, schema, overwrite=overwrite)
        self._run = run

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TopicsWritten:
        return self._sink.append(iterator, run=self._run, batch_id=0)


class TopicsStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        self._sink = _Sink(options, schema, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TopicsWritten:
        query, batch = _property(QUERY_ID), _property(BATCH_ID)
        return self._sink.append(iterator, run=query, batch_id=int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing to do: what tasks appended is there already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing to undo: the next try finds what this one wrote."""


def _property(name: str) -> Any:  # noqa: ANN401 - Spark gives text
    context = TaskContext.get()
    value = context.getLocalProperty(name) if context is not None else None
    if value is None:
        raise OptionError(f"Spark does not say {name}, without which nothing is written just once")
    return value
