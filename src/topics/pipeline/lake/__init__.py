"""The lake: topics as tables of Parquet files, each record in them once.

`log.py` says which files count, `write.py` makes those of a batch, `tables.py` reads them. Nothing
here needs Spark before a table is read or written. Reference: docs/reference/pipeline.md.
"""

from topics.pipeline.lake.tables import list_tables, read_table, table_files

__all__ = ["list_tables", "read_table", "table_files"]
