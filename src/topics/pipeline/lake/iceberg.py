"""Tables of a lake as Iceberg tables, in a catalog of the lake's own or in one that is given.

Keeps: columns, files and the version of the lake change in one commit of a table; one that shows
the version already is left alone. Files hold no ids of columns: a mapping of names does.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    NotInstalledError,
    RESTError,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table, Transaction
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.typedef import Record
from pyspark.sql.pandas.types import to_arrow_schema

from topics.errors import PipelineError
from topics.pipeline.lake.columns import changed_types
from topics.pipeline.lake.log import LakeLog
from topics.pipeline.lake.publish import Listed, Listing, days_of
from topics.pipeline.lake.tables import parse_schema

if TYPE_CHECKING:
    import pyarrow as pa

CATALOG_DIR: Final = "_iceberg"
NAMESPACE: Final = "topics"
VERSION: Final = "topics.lake-version"
COLUMNS: Final = "topics.lake-columns"
_MAPPING: Final = "schema.name-mapping.default"
_HIDDEN_ID: Final = 1_000_000
"""Ids of columns that only files have; those of a table count from 1."""
_PROPERTIES: Final = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
}
_PROBLEMS: Final = (
    CommitFailedException, CommitStateUnknownException, NotInstalledError, RESTError, ValueError,
)  # fmt: skip


def open_catalog(root: str, name: str | None) -> tuple[Catalog, str]:
    """Open the catalog of a lake, or one by its name in pyiceberg's own configuration."""
    if name is not None:
        catalog, _, namespace = name.partition(".")
        return load_catalog(catalog), namespace or NAMESPACE
    uri = f"sqlite:///{root}/{CATALOG_DIR}/catalog.db"
    return load_catalog(NAMESPACE, type="sql", uri=uri, warehouse=f"file://{root}"), NAMESPACE


class IcebergTables:
    """The tables of one lake, under their names, in one namespace."""

    def __init__(self, log: LakeLog, catalog: str | None) -> None:
        log.disk.make_dir(CATALOG_DIR)
        with _told("the catalog"):
            self._catalog, self._namespace = open_catalog(log.root, catalog)
            self._catalog.create_namespace_if_not_exists(self._namespace)

    def publish(self, listing: Listing, now_ms: int) -> None:  # noqa: ARG002 - Iceberg takes the time itself
        with _told(f"the Iceberg table {listing.table}"):
            table = self._open(listing)
            if int(table.properties.get(VERSION, -1)) < listing.version:
                _publish(table, listing)

    def expire(self, table: str, until_ms: int) -> None:
        with _told(f"the Iceberg table {table}"):
            opened = self._catalog.load_table((self._namespace, table))
            until = datetime.fromtimestamp(until_ms / 1000, UTC)
            opened.maintenance.expire_snapshots().older_than(until).commit()

    def close(self) -> None:
        self._catalog.close()

    def _open(self, listing: Listing) -> Table:
        name = (self._namespace, listing.table)
        try:
            return self._catalog.load_table(name)
        except NoSuchTableError:
            location = f"file://{listing.directory}"
            columns = _arrow_schema(listing)
            return self._catalog.create_table(
                name, columns, location=location, properties=_PROPERTIES
            )


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except _PROBLEMS as error:
        raise PipelineError(f"{what}: {type(error).__name__}: {error}") from error


def _publish(table: Table, listing: Listing) -> None:
    shown = {task.file.file_path: task.file for task in table.scan().plan_files()}
    wanted = {f"{table.location()}/{path}": file for path, file in listing.files.items()}
    if wanted.keys() == shown.keys() and table.properties.get(COLUMNS) == listing.schema_json:
        return
    with table.transaction() as change:
        if not table.spec().fields:
            with change.update_spec() as spec:
                for name in listing.partition_by:
                    spec.add_identity(name)
        _update_columns(change, listing)
        spec_id = change.table_metadata.default_spec_id
        added = [_data_file(p, f, spec_id) for p, f in wanted.items() if p not in shown]
        gone = [file for path, file in shown.items() if path not in wanted]
        _update_files(change, added, gone)
        change.set_properties(
            {
                VERSION: str(listing.version),
                COLUMNS: listing.schema_json,
                _MAPPING: _name_mapping(change, listing),
            }
        )


def _update_columns(change: Transaction, listing: Listing) -> None:
    stored = change.table_metadata.properties.get(COLUMNS)
    if stored == listing.schema_json:
        return
    known = [] if stored is None else msgspec.json.decode(stored)["fields"]
    changed = changed_types(known, listing.columns)
    if changed:  # then all files are new: write.py sees to it
        with change.update_schema(allow_incompatible_changes=True) as update:
            for path in changed:
                update.delete_column(path)
    with change.update_schema() as update:
        update.union_by_name(_arrow_schema(listing))


def _update_files(change: Transaction, added: Sequence[DataFile], gone: Sequence[DataFile]) -> None:
    update = change.update_snapshot()
    if gone:
        with update.overwrite() as replace:
            for file in gone:
                replace.delete_data_file(file)
            for file in added:
                replace.append_data_file(file)
    elif added:
        with update.merge_append() as append:
            for file in added:
                append.append_data_file(file)


def _data_file(path: str, file: Listed, spec_id: int) -> DataFile:
    topic, *days = file.values
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(topic, *map(days_of, days)),
        record_count=file.rows,
        file_size_in_bytes=file.bytes,
    )
    made.spec_id = spec_id
    return made


def _name_mapping(change: Transaction, listing: Listing) -> str:
    """Map names to ids; columns that only files have get ids that no column of a table has."""
    own = change.table_metadata.schema().name_mapping.root
    hidden = [
        MappedField.model_validate({"field-id": _HIDDEN_ID + number, "names": [name]})
        for number, name in enumerate(listing.hidden)
    ]
    return NameMapping([*own, *hidden]).model_dump_json()


def _arrow_schema(listing: Listing) -> "pa.Schema":
    return to_arrow_schema(parse_schema(listing.schema_json), timezone="UTC")
