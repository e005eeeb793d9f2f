"""Small files of a lake into large ones, and files that nobody needs any more away.

Keeps: rows stay what they are, and are counted before the switch, which is one commit. Whoever has
begun to read goes on with the old files: they stay for a grace time after the switch.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from topics.clock import Clock
from topics.errors import FileMissing, LakeConflict
from topics.pipeline.jobs.job import JobRun
from topics.pipeline.lake.entry import Change, LakeFile, LakeState
from topics.pipeline.lake.files import adopt, list_files
from topics.pipeline.lake.log import LakeLog, open_lake, table_dir
from topics.pipeline.lake.publish import publish
from topics.pipeline.lake.tables import read_files
from topics.pipeline.lake.write import check_rows, save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPACT: Final = "compact"
TARGET_BYTES: Final = 128 << 20
GRACE_MS: Final = 3_600_000
_log = logging.getLogger("topics.pipeline")


class CompactOptions(Struct, frozen=True, kw_only=True):
    """How large files should be, and how long replaced ones stay."""

    target_bytes: int = TARGET_BYTES
    grace_ms: int = GRACE_MS


def plan_compaction(state: LakeState, *, target_bytes: int) -> dict[str, list[LakeFile]]:
    """Choose per table the files that are small and have small neighbours in their folder. Pure."""
    folders: dict[tuple[str, str], list[LakeFile]] = {}
    for file in state.files.values():
        if file.bytes < target_bytes:
            folders.setdefault((file.table, file.path.rpartition("/")[0]), []).append(file)
    chosen: dict[str, list[LakeFile]] = {}
    for (table, _), files in sorted(folders.items()):
        if len(files) > 1:
            chosen.setdefault(table, []).extend(files)
    return chosen


def run_compact(
    spark: "SparkSession",
    root: str,
    options: CompactOptions,
    run: JobRun,
    *,
    clock: Clock | None = None,
) -> None:
    """Compact every table, then delete what has been replaced for long enough."""
    log = open_lake(root, clock=clock)
    with log.only_writer(COMPACT):
        plan = plan_compaction(log.load(), target_bytes=options.target_bytes)
        before = sum(map(len, plan.values()))
        made = 0
        for table, files in plan.items():
            if not run.dry_run:
                made += _try_table(spark, log, table, files, options)
            run.step(rows=sum(file.rows for file in files), table=table)
        until_ms = log.now_ms() - options.grace_ms
        deleted = 0
        if not run.dry_run:
            publish(log, expire_until_ms=until_ms)
            deleted = _delete_old(log, until_ms)
    run.detail.update(files_before=before, files_after=made, files_deleted=deleted)


def _try_table(
    spark: "SparkSession",
    log: LakeLog,
    table: str,
    files: Sequence[LakeFile],
    options: CompactOptions,
) -> int:
    """Compact a table, unless a batch has just written it anew; return how many files it made."""
    try:
        return len(_compact_table(spark, log, table, files, options))
    except LakeConflict as conflict:
        _log.info("topics: %s is left for the next time: %s", table, conflict)
        return 0


def _compact_table(
    spark: "SparkSession",
    log: LakeLog,
    table: str,
    files: Sequence[LakeFile],
    options: CompactOptions,
) -> list[LakeFile]:
    state = log.load()
    rows = read_files(spark, log, state, files, table=table)
    parts = 1 + sum(file.bytes for file in files) // options.target_bytes
    order = [name for name in ("topic", "date", "partition", "seq") if name in rows.columns]
    sorted_rows = rows.repartition(parts, "topic", "date").sortWithinPartitions(*order)
    save(sorted_rows, log, COMPACT, table)
    schema = len(state.schemas[table]) - 1
    name = f"{COMPACT}-{state.version:012}"
    made = adopt(log, COMPACT, table, name=name, schema=schema)
    check_rows(table, files, made)
    log.commit(Change(add=tuple(made), remove=tuple(file.path for file in files)))
    return made


def _delete_old(log: LakeLog, until_ms: int) -> int:
    """Delete files that were replaced before then, and those that no run will ever name."""
    state = log.load()
    old = [path for path, ts in state.removed.items() if ts <= until_ms]
    left = [path for path in _all_files(log, state) if _is_left_over(path, state)]
    for path in (*old, *left):
        try:
            log.disk.unlink(path)
        except FileMissing:
            continue  # deleted by a run that ended before it could say so
    if old:
        log.commit(Change(), forget=old)
    log.trim()
    return len(old) + len(left)


def _all_files(log: LakeLog, state: LakeState) -> Iterable[str]:
    for table in state.schemas:
        yield from list_files(log, table_dir(table))


def _is_left_over(path: str, state: LakeState) -> bool:
    """Tell whether a file is of a batch that is over, and was not part of it."""
    if path in state.files or path in state.removed:
        return False
    name = path.rpartition("/")[2]
    if name.startswith(f"{COMPACT}-"):
        return True  # only one compaction runs at a time, and it is this one
    query, _, rest = name.partition("-")
    query_id, _, rest = rest.partition("-")
    known = state.queries.get(query)
    batch = rest.partition("-")[0]
    if known is None or not known.id.startswith(query_id) or not batch.isdecimal():
        return False
    return int(batch) <= known.batch
