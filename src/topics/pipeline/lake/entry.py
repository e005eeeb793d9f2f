"""What the log of a lake says: one entry a commit, and the state that they add up to. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct

FormatName: TypeAlias = Literal["parquet", "delta", "iceberg"]

WHOLE_EVERY: Final = 64
"""Each entry with such a number repeats the whole state: nobody reads more than this many."""


class TableFormat(Struct, frozen=True):
    """How tables are shown to others; `catalog` is one of Iceberg, None for the lake's own."""

    name: FormatName = "parquet"
    catalog: str | None = None


class LakeFile(Struct, frozen=True, kw_only=True):
    """One Parquet file of a table; `path` is below the root, `schema` counts those of the table."""

    table: str
    path: str
    rows: int
    bytes: int
    schema: int


class Query(Struct, frozen=True):
    """Who writes, by the id in its checkpoint, and its last batch in the lake."""

    id: str
    batch: int
    offsets: Mapping[str, int] = {}
    """How far its batches reach, by topic or partition: where a new checkpoint would go on."""
    epochs: Mapping[str, int] = {}
    """In which life of each of them that is."""


class Change(Struct, frozen=True, kw_only=True):
    """What one commit does, all of it or nothing."""

    add: tuple[LakeFile, ...] = ()
    remove: tuple[str, ...] = ()
    schemas: Mapping[str, str] = {}
    """For a table whose schema is new or has grown: what it is from now on, as Spark's JSON."""
    query: str | None = None
    query_id: str = ""
    batch: int = -1
    offsets: Mapping[str, int] = {}
    epochs: Mapping[str, int] = {}
    format: TableFormat | None = None
    """Said once, before there are files."""


class LakeState(Struct, frozen=True, kw_only=True):
    """All that readers and writers need to know."""

    version: int = -1
    files: Mapping[str, LakeFile] = {}
    schemas: Mapping[str, tuple[str, ...]] = {}
    queries: Mapping[str, Query] = {}
    removed: Mapping[str, int] = {}
    """Files that no longer count, and when that was, until they are deleted."""
    format: TableFormat = TableFormat()

    def files_of(self, table: str) -> list[LakeFile]:
        return [file for file in self.files.values() if file.table == table]

    def rows(self) -> dict[str, int]:
        """Count the rows of every table."""
        found = dict.fromkeys(sorted(self.schemas), 0)
        for file in self.files.values():
            found[file.table] = found.get(file.table, 0) + file.rows
        return found

    def has_batch(self, change: Change) -> bool:
        known = self.queries.get(change.query or "")
        return known is not None and known.id == change.query_id and change.batch <= known.batch


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A commit as it is stored; `whole` is there in every `WHOLE_EVERY`th, after the change."""

    version: int
    ts: int
    change: Change
    forget: tuple[str, ...] = ()
    whole: LakeState | None = None


def apply_entry(state: LakeState, entry: Entry) -> LakeState:
    """Return the state behind an entry."""
    if entry.whole is not None:
        return entry.whole
    change = entry.change
    gone = frozenset(change.remove)
    forgotten = frozenset(entry.forget)
    kept = {path: file for path, file in state.files.items() if path not in gone}
    schemas = dict(state.schemas)
    for table, schema in change.schemas.items():
        schemas[table] = (*schemas.get(table, ()), schema)
    queries = dict(state.queries)
    if change.query is not None:
        queries[change.query] = Query(change.query_id, change.batch, change.offsets, change.epochs)
    return LakeState(
        version=entry.version,
        files=kept | {file.path: file for file in change.add},
        schemas=schemas,
        queries=queries,
        removed={path: ts for path, ts in state.removed.items() if path not in forgotten}
        | dict.fromkeys(gone, entry.ts),
        format=change.format or state.format,
    )


def first_needed(versions: Iterable[int]) -> int:
    """Return the newest version that has the whole state in it; entries before it say no more."""
    return max((v for v in versions if v % WHOLE_EVERY == 0), default=0)
