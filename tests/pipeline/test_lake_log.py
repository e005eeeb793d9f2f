"""The log of a lake: all of a batch or nothing, once, whoever else commits."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from topics.errors import LakeConflict, OptionError
from topics.pipeline.lake.entry import WHOLE_EVERY, Change, LakeFile, Query
from topics.pipeline.lake.log import LakeLog
from topics.pipeline.lake.query import reached
from topics.pipeline.lake.write import Batch, LakeWriter
from topics.pipeline.offsets import Part, PartState
from topics.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def file(log: LakeLog, name: str, *, table: str = "_raw") -> LakeFile:
    path = f"raw/{name}.parquet"
    target = Path(log.root) / path
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(b"x")
    return LakeFile(table=table, path=path, rows=1, bytes=1, schema=0)


def batch(log: LakeLog, number: int, *, query_id: str = "q") -> Change:
    added = (file(log, f"b{number}"),)
    return Change(add=added, query="lake", query_id=query_id, batch=number)


def test_what_was_committed_is_there_for_whoever_opens_the_lake(tmp_path: Path) -> None:
    log = LakeLog(str(tmp_path))
    log.commit(batch(log, 0))
    log.commit(Change(schemas={"orders": "{}"}))
    state = LakeLog(str(tmp_path)).load()
    assert list(state.files) == ["raw/b0.parquet"]
    assert state.queries["lake"].batch == 0
    assert state.schemas == {"orders": ("{}",)}


def test_a_batch_that_is_repeated_changes_nothing(tmp_path: Path) -> None:
    log = LakeLog(str(tmp_path))
    log.commit(batch(log, 0))
    before = log.load()
    other = Change(add=(file(log, "again"),), query="lake", query_id="q", batch=0)
    assert log.commit(other) == before


def test_an_entry_that_was_only_half_written_is_not_seen(tmp_path: Path) -> None:
    log = LakeLog(str(tmp_path))
    log.commit(batch(log, 0))
    (tmp_path / "_log" / "new").write_bytes(b'{"version": 1')
    assert log.load().version == 0
    assert log.commit(batch(log, 1)).version == 1


def test_many_commits_are_read_from_the_last_whole_entry(tmp_path: Path) -> None:
    log = LakeLog(str(tmp_path))
    for number in range(2 * WHOLE_EVERY + 3):
        log.commit(batch(log, number))
    before = log.load()
    assert log.trim() == WHOLE_EVERY
    assert log.load() == before
    assert len(before.files) == 2 * WHOLE_EVERY + 3
    whole = json.loads((tmp_path / "_log" / f"{2 * WHOLE_EVERY:020}.json").read_bytes())
    assert len(whole["whole"]["files"]) == 2 * WHOLE_EVERY + 1


def test_a_replaced_file_no_longer_counts_and_is_remembered_with_its_time(tmp_path: Path) -> None:
    log = LakeLog(str(tmp_path), clock=ManualClock(now_ms=77))
    log.commit(batch(log, 0))
    state = log.commit(Change(add=(file(log, "large"),), remove=("raw/b0.parquet",)))
    assert list(state.files) == ["raw/large.parquet"]
    assert state.removed == {"raw/b0.parquet": 77}
    assert log.commit(Change(), forget=["raw/b0.parquet"]).removed == {}


def test_what_another_run_has_replaced_cannot_be_replaced_again(tmp_path: Path) -> None:
    log = LakeLog(str(tmp_path))
    log.commit(batch(log, 0))
    log.commit(Change(remove=("raw/b0.parquet",)))
    with pytest.raises(LakeConflict, match="another run replaced it"):
        log.commit(Change(remove=("raw/b0.parquet",)))


def test_only_one_run_writes_under_a_name(tmp_path: Path) -> None:
    log = LakeLog(str(tmp_path))
    with log.only_writer("lake"):
        with pytest.raises(LakeConflict, match="already runs `lake`"):
            LakeLog(str(tmp_path)).only_writer("lake").__enter__()
        with log.only_writer("rollup"):
            pass
    with log.only_writer("lake"):
        pass


@pytest.mark.parametrize("root", ["lake", "s3://bucket/lake", "/", ""])
def test_a_root_that_executors_cannot_share_is_refused(root: str) -> None:
    with pytest.raises(OptionError):
        LakeLog(root)


@pytest.mark.parametrize(("conflicts", "rows"), [(0, 5), (2, 5), (3, None)])
def test_a_batch_begins_again_when_a_compaction_was_faster_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, conflicts: int, rows: int | None
) -> None:
    left = [LakeConflict("replaced")] * conflicts

    def write(*_: object) -> int:
        if left:
            raise left.pop()
        return 5

    monkeypatch.setattr(LakeWriter, "_write", write)
    writer = LakeWriter(LakeLog(str(tmp_path)), (), infer=True)
    batch = Batch(query="lake", query_id="q", number=0, offsets={})
    if rows is None:
        with pytest.raises(LakeConflict):
            writer.write(cast("DataFrame", None), batch)
    else:
        assert writer.write(cast("DataFrame", None), batch) == rows


def test_a_query_goes_on_where_it_was_and_at_the_start_of_what_is_new_or_made_anew() -> None:
    known = Query("q", 3, {"old": 40, "again": 40}, {"old": 1, "again": 2})

    def state(name: str, epoch: int) -> PartState:
        return PartState(part=Part(name, name), epoch=epoch, head_seq=50, earliest_seq=1)

    assert reached(state("old", 1), known) == 40
    assert reached(state("again", 9), known) == 0
    assert reached(state("new", 5), known) == 0
    of_before = Query("q", 3, {"old": 40})
    assert reached(state("old", 1), of_before) == 40
