"""Tables of a lake for readers of Delta and Iceberg: the same files, listed a second time.

Keeps: the log of the lake alone says what counts. A table here shows the files of one version of
that log, and the next publication brings it to the newest: whatever was cut off, by whom and
where, no file is ever listed twice or for ever left out. Nothing is copied.
"""

from collections.abc import Mapping
from datetime import date
from importlib.util import find_spec
from typing import Any, Final, Protocol
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from topics.errors import OptionError
from topics.pipeline.lake.entry import Change, FormatName, LakeFile, LakeState, TableFormat
from topics.pipeline.lake.log import GAPS, LakeLog, table_dir
from topics.pipeline.lake.tables import COLUMNS

_PACKAGES: Final = {"delta": "deltalake", "iceberg": "pyiceberg"}


class Listed(Struct, frozen=True):
    """One file as another format names it: below the directory of its table."""

    path: str
    rows: int
    bytes: int
    values: tuple[str, ...]
    """Those of the columns that its folders stand for."""


class Listing(Struct, frozen=True, kw_only=True):
    """A whole table in one version of the lake."""

    table: str
    directory: str
    version: int
    columns: list[dict[str, Any]]
    """As Spark writes fields in JSON."""
    hidden: tuple[str, ...]
    """Columns of the files that are no part of the table."""
    partition_by: tuple[str, ...]
    files: Mapping[str, Listed]

    @property
    def schema_json(self) -> str:
        return msgspec.json.encode({"type": "struct", "fields": self.columns}).decode()


class Tables(Protocol):
    """All tables of a lake in one format."""

    def publish(self, listing: Listing, now_ms: int) -> None:
        """Make a table show just these files, in one commit."""

    def expire(self, table: str, until_ms: int) -> None:
        """Forget what the table was before then: its files are deleted."""

    def close(self) -> None: ...


def check_format(wanted: TableFormat) -> None:
    """Refuse a format whose package is not here, or that has no catalog."""
    package = _PACKAGES.get(wanted.name)
    if package is not None and find_spec(package) is None:
        raise OptionError(
            f"tables in {wanted.name} need {package}: run pip install 'topics-log[{wanted.name}]'"
        )
    if wanted.catalog is not None and wanted.name != "iceberg":
        raise OptionError(f"a catalog goes with iceberg; tables in {wanted.name} have none")


def parse_format(name: FormatName | None, catalog: str | None) -> TableFormat | None:
    """Read what was asked for; nothing said is nothing asked."""
    if name is None and catalog is None:
        return None
    wanted = TableFormat(name or "parquet", catalog)
    check_format(wanted)
    return wanted


def open_tables(log: LakeLog, chosen: TableFormat) -> Tables | None:
    check_format(chosen)
    if chosen.name == "delta":
        from topics.pipeline.lake.delta import DeltaTables  # noqa: PLC0415 - an extra

        return DeltaTables()
    if chosen.name == "iceberg":
        from topics.pipeline.lake.iceberg import IcebergTables  # noqa: PLC0415 - an extra

        return IcebergTables(log, chosen.catalog)
    return None


def publish(
    log: LakeLog, changed: Change | None = None, *, expire_until_ms: int | None = None
) -> None:
    """Bring tables to the newest version of the lake: those of a change, or all of them.

    A lake of Parquet alone has none. Every run begins with all: one before it may have been cut.
    """
    tables = open_tables(log, log.load().format)
    if tables is None:
        return
    try:
        with log.locked("publish"):
            state = log.load()
            for table in sorted(state.schemas if changed is None else _tables_of(changed, state)):
                listing = list_table(log.root, state, table)
                tables.publish(listing, log.now_ms())
                if expire_until_ms is not None:
                    tables.expire(table, expire_until_ms)
    finally:
        tables.close()


def _tables_of(change: Change, state: LakeState) -> set[str]:
    return ({file.table for file in change.add} | change.schemas.keys()) & state.schemas.keys()


def list_table(root: str, state: LakeState, table: str) -> Listing:
    """Say what a table is: its columns, and the files that count. Pure."""
    fields = msgspec.json.decode(state.schemas[table][-1])["fields"]
    shown = COLUMNS.get(table) or tuple(field["name"] for field in fields)
    directory = f"{root}/{table_dir(table)}"
    by = ("topic",) if table == GAPS else ("topic", "date")
    return Listing(
        table=table,
        directory=directory,
        version=state.version,
        columns=[field for field in fields if field["name"] in shown],
        hidden=tuple(field["name"] for field in fields if field["name"] not in shown),
        partition_by=by,
        files={found.path: found for found in (_listed(f, by) for f in state.files_of(table))},
    )


def days_of(text: str) -> int:
    """Return a day as Iceberg counts it."""
    return (date.fromisoformat(text) - date(1970, 1, 1)).days


def _listed(file: LakeFile, by: tuple[str, ...]) -> Listed:
    below = file.path.removeprefix(f"{table_dir(file.table)}/")
    folders = dict(part.partition("=")[::2] for part in below.split("/")[:-1])
    values = tuple(unquote(folders[name]) for name in by)
    return Listed(path=below, rows=file.rows, bytes=file.bytes, values=values)
