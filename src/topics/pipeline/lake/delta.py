"""Tables of a lake as Delta tables; the folder of a table is the Delta table.

Keeps: a commit carries the version of the lake it shows, as an application transaction, so that a
table that is up to date is left alone.
"""

from typing import Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from topics.errors import PipelineError
from topics.pipeline.lake.columns import changed_types, has_new
from topics.pipeline.lake.publish import Listed, Listing

APP_ID: Final = "topics-lake"


class DeltaTables:
    """Needs no catalog: who knows the folder knows the table."""

    def publish(self, listing: Listing, now_ms: int) -> None:
        try:
            _publish(listing, now_ms)
        except DeltaError as error:
            raise PipelineError(f"the Delta table {listing.directory}: {error}") from error

    def expire(self, table: str, until_ms: int) -> None:
        """Leave it to Delta, which forgets old versions by the age of its own log."""

    def close(self) -> None:
        """Nothing is held open."""


def _publish(listing: Listing, now_ms: int) -> None:
    schema = Schema.from_json(listing.schema_json)
    by = list(listing.partition_by)
    if not DeltaTable.is_deltatable(listing.directory):
        DeltaTable.create(listing.directory, schema, partition_by=by)
    table = DeltaTable(listing.directory)
    done = table.transaction_version(APP_ID)
    if done is not None and done >= listing.version:
        return
    properties = CommitProperties(app_transactions=[Transaction(APP_ID, listing.version)])
    shown = _paths(table)
    added = [_add(file, by, now_ms) for path, file in listing.files.items() if path not in shown]
    known = msgspec.json.decode(table.schema().to_json())["fields"]
    if changed_types(known, listing.columns):  # then all files are new: write.py sees to it
        table.create_write_transaction(
            list(added), "overwrite", schema, by, commit_properties=properties
        )
        return
    if has_new(known, listing.columns):
        table.alter.add_columns(schema.fields)
    gone = shown - listing.files.keys()
    actions: list[AddAction | RemoveAction] = [
        *added,
        *(RemoveAction(path, True, now_ms) for path in gone),  # noqa: FBT003 - takes no names
    ]
    if actions:
        table.create_write_transaction(
            actions, "append", table.schema(), by, commit_properties=properties
        )


def _paths(table: DeltaTable) -> set[str]:
    actions = pa.table(table.get_add_actions())
    return {unquote(path) for path in actions.column("path").to_pylist()}


def _add(file: Listed, by: list[str], now_ms: int) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.bytes,
        partition_values=dict(zip(by, file.values, strict=True)),
        modification_time=now_ms,
        data_change=True,
        stats=msgspec.json.encode({"numRecords": file.rows}).decode(),
    )
