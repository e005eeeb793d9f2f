"""The Parquet files of a lake: staged by Spark, named by us, counted by their footers.

Keeps: a file that is made again for the same batch gets the same name, so that nothing is left of
the try before; names tell the batch, so that leftovers can be told from files to come.
"""

from collections.abc import Iterator
from typing import Final

from topics.pipeline.lake.entry import LakeFile
from topics.pipeline.lake.log import GAPS, RAW, STAGING_DIR, LakeLog, table_dir

SUFFIX: Final = ".parquet"
NO_DATE: Final = "date=__HIVE_DEFAULT_PARTITION__"
"""Where Spark puts rows without a time: those that stand for gaps."""


def list_files(log: LakeLog, directory: str) -> Iterator[str]:
    """Yield the Parquet files below a directory, by name; other formats keep their lists there."""
    for name in log.disk.list(directory):
        path = f"{directory}/{name}"
        if name.endswith(SUFFIX):
            yield path
        elif "=" in name and not name.startswith("."):
            yield from list_files(log, path)


def staging(query: str, table: str) -> str:
    return f"{STAGING_DIR}/{query}/{table_dir(table)}"


def adopt(log: LakeLog, query: str, table: str, *, name: str, schema: int) -> list[LakeFile]:
    """Move what was staged for a table to its place; it does not count before a commit."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - comes with the extra; only a run needs it

    source = staging(query, table)
    found = []
    for number, path in enumerate(sorted(list_files(log, source))):
        below = path.removeprefix(f"{source}/").rpartition("/")[0]
        owner = GAPS if table == RAW and below.endswith(NO_DATE) else table
        directory = f"{table_dir(owner)}/{below.removesuffix('/' + NO_DATE)}"
        target = f"{directory}/{name}-{number:05}{SUFFIX}"
        rows = pq.read_metadata(f"{log.root}/{path}").num_rows
        if not rows:
            continue
        log.disk.make_dir(directory)
        log.disk.rename(path, target)
        size = log.disk.size(target)
        found.append(LakeFile(table=owner, path=target, rows=rows, bytes=size, schema=schema))
    return found
