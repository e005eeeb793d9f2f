"""Tables of a lake in Delta and Iceberg, without Spark: read back by the packages of others."""

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from topics.errors import OptionError
from topics.pipeline.lake import publish as publishing
from topics.pipeline.lake.columns import changed_types, has_new
from topics.pipeline.lake.entry import Change, LakeFile, TableFormat
from topics.pipeline.lake.files import list_files
from topics.pipeline.lake.log import LakeLog, table_dir
from topics.pipeline.lake.publish import check_format, publish
from topics.testing.manual_clock import ManualClock

pytest.importorskip("deltalake", reason="pip install topics-log[delta]")
pytest.importorskip("pyiceberg", reason="pip install topics-log[iceberg]")
pytest.importorskip("pyspark", reason="pip install topics-log[spark]")

FORMATS = ("delta", "iceberg")
TABLE = "shop:orders 1"
TOPIC = "shop:orders 1"
LONG, DOUBLE, TEXT = ("long", pa.int64()), ("double", pa.float64()), ("string", pa.string())


def field(name: str, kind: object) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def struct(**columns: object) -> dict[str, Any]:
    return {"type": "struct", "fields": [field(name, kind) for name, kind in columns.items()]}


class Table:
    """One typed table of a lake, filled by hand."""

    def __init__(self, root: Path, name: str, table: str = TABLE) -> None:
        self.log = LakeLog(str(root), clock=ManualClock(now_ms=1_000_000))
        self.table = table
        self.log.commit(Change(format=TableFormat(name)))  # type: ignore[arg-type] # a parameter
        self._format = name
        self._schemas = 0
        self._batches = 0

    def schema(self, **value: tuple[str, Any]) -> dict[str, str]:
        kinds = {name: kind for name, (kind, _) in value.items()}
        columns = struct(topic="string", seq="long", ts="timestamp", value=struct(**kinds))
        columns["fields"].append(field("date", "date"))
        self._schemas += 1
        return {self.table: msgspec.json.encode(columns).decode()}

    def file(self, name: str, seqs: list[int], **value: Any) -> LakeFile:  # noqa: ANN401 - any type
        folder = f"{table_dir(self.table)}/topic=shop%3Aorders 1/date=2026-11-15"
        kinds = pa.struct([(key, kind) for key, (kind, _) in value.items()])
        values = [{key: given for key, (_, given) in value.items()}] * len(seqs)
        rows = pa.table(
            {
                "seq": pa.array(seqs, pa.int64()),
                "ts": pa.array([seq * 1000 for seq in seqs], pa.timestamp("us", tz="UTC")),
                "value": pa.array(values, kinds),
            }
        )
        self.log.disk.make_dir(folder)
        path = f"{folder}/{name}.parquet"
        pq.write_table(rows, f"{self.log.root}/{path}")
        size = self.log.disk.size(path)
        number = self._schemas - 1
        return LakeFile(table=self.table, path=path, rows=len(seqs), bytes=size, schema=number)

    def read(self) -> list[dict[str, Any]]:
        """Read as somebody would who knows nothing of us."""
        if self._format == "delta":
            from deltalake import DeltaTable  # noqa: PLC0415 - an extra

            found = DeltaTable(f"{self.log.root}/{table_dir(self.table)}").to_pyarrow_table()
        else:
            from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - an extra

            uri = f"sqlite:///{self.log.root}/_iceberg/catalog.db"
            catalog = SqlCatalog("topics", uri=uri)
            found = catalog.load_table(("topics", self.table)).scan().to_arrow()
            catalog.close()
        rows: list[dict[str, Any]] = found.to_pylist()
        return sorted(rows, key=lambda row: row.get("seq", 0))

    def listing(self) -> list[str]:
        """Return all that lies in the folder of the table."""
        folder = Path(self.log.root, table_dir(self.table))
        return sorted(str(path) for path in folder.rglob("*"))

    def seqs(self) -> list[int]:
        return [row["seq"] for row in self.read()]


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return Table(tmp_path, request.param)


def batch(number: int, **change: Any) -> Change:  # noqa: ANN401 - any field
    return Change(query="lake", query_id="q", batch=number, **change)


def test_a_published_table_has_every_row_with_the_values_of_its_folders(table: Table) -> None:
    one = table.file("b0", [1, 2], a=(pa.int64(), 7))
    table.log.commit(batch(0, schemas=table.schema(a=LONG), add=(one,)))
    publish(table.log)
    rows = table.read()
    assert [(row["topic"], row["seq"], row["value"]) for row in rows] == [
        (TOPIC, 1, {"a": 7}),
        (TOPIC, 2, {"a": 7}),
    ]
    assert {str(row["date"]) for row in rows} == {"2026-11-15"}


def test_a_table_without_files_is_there_and_empty(table: Table) -> None:
    table.log.commit(Change(schemas=table.schema(a=LONG)))
    publish(table.log)
    assert table.read() == []


def test_files_that_no_commit_names_are_not_in_the_table(table: Table) -> None:
    one, left = (table.file(name, [1], a=(pa.int64(), 7)) for name in ("b0", "left"))
    table.log.commit(batch(0, schemas=table.schema(a=LONG), add=(one,)))
    publish(table.log)
    assert table.log.disk.exists(left.path)
    assert table.seqs() == [1]


def test_a_batch_that_is_committed_and_published_again_adds_nothing(table: Table) -> None:
    change = batch(0, schemas=table.schema(a=LONG), add=(table.file("b0", [1], a=(pa.int64(), 7)),))
    for _ in range(2):
        table.log.commit(change)
        publish(table.log)
    assert table.seqs() == [1]


def test_what_was_committed_and_not_published_comes_with_the_next_publication(table: Table) -> None:
    table.log.commit(Change(schemas=table.schema(a=LONG)))
    publish(table.log)
    for number in range(3):  # as if killed after each commit
        file = table.file(f"b{number}", [number], a=(pa.int64(), 7))
        table.log.commit(batch(number, add=(file,)))
    assert table.seqs() == []
    publish(table.log)
    assert table.seqs() == [0, 1, 2]


def test_a_publication_that_was_cut_off_between_tables_is_finished_by_the_next(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.log.commit(Change(schemas=table.schema(a=LONG)))
    table.log.commit(batch(0, add=(table.file("b0", [1], a=(pa.int64(), 7)),)))

    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(publishing, "list_table", cut)
        with pytest.raises(KeyboardInterrupt):
            publish(table.log)
    publish(table.log)
    assert table.seqs() == [1]


def test_a_table_whose_own_list_is_lost_is_listed_anew(table: Table) -> None:
    change = batch(0, schemas=table.schema(a=LONG), add=(table.file("b0", [1], a=(pa.int64(), 7)),))
    table.log.commit(change)
    publish(table.log)
    for lost in (f"{table_dir(table.table)}/_delta_log", "_iceberg"):
        shutil.rmtree(f"{table.log.root}/{lost}", ignore_errors=True)
    publish(table.log)
    assert table.seqs() == [1]


def test_the_lists_of_other_formats_are_no_files_of_the_lake(table: Table) -> None:
    one = table.file("b0", [1], a=(pa.int64(), 7))
    table.log.commit(batch(0, schemas=table.schema(a=LONG), add=(one,)))
    publish(table.log)
    assert list(list_files(table.log, table_dir(table.table))) == [one.path]


def test_only_the_tables_of_a_change_are_looked_at(table: Table) -> None:
    change = batch(0, schemas=table.schema(a=LONG), add=(table.file("b0", [1], a=(pa.int64(), 7)),))
    table.log.commit(change)
    publish(table.log)
    two = table.file("b1", [2], a=(pa.int64(), 7))
    table.log.commit(batch(1, add=(two,)))
    publish(table.log, Change(schemas={"other": "{}"}))
    assert table.seqs() == [1]
    publish(table.log, batch(1, add=(two,)))
    assert table.seqs() == [1, 2]


def test_a_table_that_is_as_it_was_gets_no_commit(table: Table) -> None:
    change = batch(0, schemas=table.schema(a=LONG), add=(table.file("b0", [1], a=(pa.int64(), 7)),))
    table.log.commit(change)
    publish(table.log)
    before = table.listing()
    table.log.commit(batch(1))
    publish(table.log)
    assert table.listing() == before


def test_compacted_files_replace_the_small_ones(table: Table) -> None:
    small = [table.file(f"b{n}", [n], a=(pa.int64(), 7)) for n in (1, 2)]
    table.log.commit(batch(0, schemas=table.schema(a=LONG), add=tuple(small)))
    publish(table.log)
    large = table.file("compact", [1, 2], a=(pa.int64(), 7))
    table.log.commit(Change(add=(large,), remove=tuple(file.path for file in small)))
    publish(table.log, expire_until_ms=0)
    for file in small:
        table.log.disk.unlink(file.path)
    assert table.seqs() == [1, 2]


def test_a_new_field_is_a_new_column_and_null_in_older_rows(table: Table) -> None:
    one = table.file("b0", [1], a=(pa.int64(), 7))
    table.log.commit(batch(0, schemas=table.schema(a=LONG), add=(one,)))
    publish(table.log)
    wider = table.schema(a=LONG, b=TEXT)
    two = table.file("b1", [2], a=(pa.int64(), 8), b=(pa.string(), "x"))
    table.log.commit(batch(1, schemas=wider, add=(two,)))
    publish(table.log)
    values = [row["value"] for row in table.read()]
    assert values == [{"a": 7, "b": None}, {"a": 8, "b": "x"}]


def test_a_column_of_another_type_comes_with_all_its_files_anew(table: Table) -> None:
    one = table.file("b0", [1], a=(pa.int64(), 7), b=(pa.string(), "x"))
    table.log.commit(batch(0, schemas=table.schema(a=LONG, b=TEXT), add=(one,)))
    publish(table.log)
    wider = table.schema(a=DOUBLE, b=TEXT)
    both = table.file("b1", [1, 2], a=(pa.float64(), 1.5), b=(pa.string(), "x"))
    table.log.commit(batch(1, schemas=wider, add=(both,), remove=(one.path,)))
    publish(table.log)
    rows = table.read()
    assert [row["value"] for row in rows] == [{"a": 1.5, "b": "x"}] * 2
    three = table.file("b2", [3], a=(pa.float64(), 2.5), b=(pa.string(), "y"))
    table.log.commit(batch(2, add=(three,)))
    publish(table.log)
    assert [row["value"]["a"] for row in table.read()] == [1.5, 1.5, 2.5]


@pytest.mark.parametrize("name", FORMATS)
def test_columns_that_only_the_files_have_are_not_shown(name: str, tmp_path: Path) -> None:
    table = Table(tmp_path, name, table="_gaps")
    columns = struct(topic="string", partition="integer", seq="long", gap_from="long")
    folder = "gaps/topic=t"
    table.log.disk.make_dir(folder)
    rows = pa.table({"partition": pa.array([0], pa.int32()), "seq": pa.nulls(1, pa.int64())})
    rows = rows.append_column("gap_from", pa.array([5], pa.int64()))
    pq.write_table(rows, f"{table.log.root}/{folder}/b0.parquet")
    file = LakeFile(table="_gaps", path=f"{folder}/b0.parquet", rows=1, bytes=1, schema=0)
    size = table.log.disk.size(file.path)
    file = msgspec.structs.replace(file, bytes=size)
    schemas = {"_gaps": msgspec.json.encode(columns).decode()}
    table.log.commit(batch(0, schemas=schemas, add=(file,)))
    publish(table.log)
    assert table.read() == [{"topic": "t", "partition": 0, "gap_from": 5}]


def test_types_that_change_are_told_from_columns_that_are_new() -> None:
    known = struct(a="long", v=struct(x="long", l={"type": "array", "elementType": "long"}))
    wider = struct(a="long", v=struct(x="long", l=known["fields"][1]["type"]["fields"][1]["type"]))
    wider["fields"][1]["type"]["fields"].append(field("new", "string"))
    assert changed_types(known["fields"], wider["fields"]) == []
    assert has_new(known["fields"], wider["fields"])
    assert not has_new(known["fields"], known["fields"])
    other = struct(a="double", v=struct(x="long", l={"type": "array", "elementType": "double"}))
    assert changed_types(known["fields"], other["fields"]) == [("a",), ("v", "l")]


@pytest.mark.parametrize(("name", "package"), [("delta", "deltalake"), ("iceberg", "pyiceberg")])
def test_a_package_that_is_missing_is_named_with_its_extra(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "find_spec", lambda _: None)
    with pytest.raises(OptionError, match=rf"need {package}: .*topics-log\[{name}\]"):
        check_format(TableFormat(name))  # type: ignore[arg-type] # a parameter


def test_a_catalog_is_for_iceberg_alone() -> None:
    check_format(TableFormat("iceberg", "prod"))
    with pytest.raises(OptionError, match="goes with iceberg"):
        check_format(TableFormat("delta", "prod"))
