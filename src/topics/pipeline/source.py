"""`format("topics")`: what Spark makes a reader, a stream or a writer from."""

import uuid
from collections.abc import MutableMapping
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from topics.errors import OptionError, TopicsError
from topics.pipeline.local_files import read_file
from topics.pipeline.options import (
    SourceOptions,
    parse_sink_options,
    parse_source_options,
)
from topics.pipeline.read import Snapshot, TopicsReader, open_catalog, take_snapshot
from topics.pipeline.schema import row_ddl
from topics.pipeline.stream import TopicsStreamReader
from topics.pipeline.write import TopicsStreamWriter, TopicsWriter


class TopicsSource(DataSource):
    """The data source `topics`.

    Spark keeps this object, pickled, for the life of a DataFrame: what it fixes when it is made
    holds for every use of the frame.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._snapshot: Snapshot | None = None
        self._refused: TopicsError | None = None
        self._fix_range()

    @classmethod
    def name(cls) -> str:
        return "topics"

    def schema(self) -> str:
        return row_ddl(self._read_options().schema)

    def reader(self, schema: StructType) -> TopicsReader:
        options = self._read_options()
        if options.group is not None:
            raise OptionError("`group` is for streams: a batch query has no progress to commit")
        if self._snapshot is None:
            # Not tried again: two uses of a frame would see two ranges.
            assert self._refused is not None
            raise self._refused
        return TopicsReader(options, _arrow_schema(schema), self._snapshot)

    def streamReader(self, schema: StructType) -> TopicsStreamReader:  # noqa: N802 - Spark's name
        return TopicsStreamReader(self._read_options(), _arrow_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> TopicsWriter:  # noqa: FBT001 - Spark's signature
        options = parse_sink_options(self.options, read_file=read_file)
        run = "batch" if options.sink_id is not None else uuid.uuid4().hex
        return TopicsWriter(options, schema, run=run, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicsStreamWriter:  # noqa: FBT001, N802 - Spark's signature
        options = parse_sink_options(self.options, read_file=read_file)
        return TopicsStreamWriter(options, schema, overwrite=overwrite)

    def _read_options(self) -> SourceOptions:
        return parse_source_options(self.options, read_file=read_file)

    def _fix_range(self) -> None:
        """Fix the range of a batch query now.

        Spark does not say what the object is made for: it may be a stream, or a sink for a topic
        that is yet to be made, with a key that may not read. So a refusal is kept for the reader,
        if there ever is one.
        """
        try:
            options = self._read_options()
            with closing(open_catalog(options)) as catalog:
                self._snapshot = take_snapshot(options, catalog)
        except TopicsError as error:
            self._refused = error


def _arrow_schema(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")
