"""Files of Parquet, where pyarrow is installed: `data` and `meta` are columns of JSON text."""

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from topics.cli.files.record import FileRecord, settle_letter
from topics.errors import ConfigError, RequestError
from topics.model.diff import NO_META

if TYPE_CHECKING:
    from types import ModuleType

GROUP_RECORDS: Final = 10_000
GROUP_BYTES: Final = 8 * 1024 * 1024
COLUMNS: Final = ("topic", "seq", "ts", "node", "tag", "key", "meta", "data")


def _pyarrow() -> "tuple[ModuleType, ModuleType]":
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra: its lack is explained
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"Parquet needs pyarrow ({missing.name} is not installed): run pip install pyarrow, "
            "or use ndjson"
        ) from missing
    return pa, pq


class ParquetWriter:
    """Gathers rows, and writes them as groups of bounded size."""

    def __init__(self, sink: IO[bytes]) -> None:
        self._pa, pq = _pyarrow()
        pa = self._pa
        self._schema = pa.schema(
            [
                pa.field("topic", pa.string(), nullable=False),
                pa.field("seq", pa.int64(), nullable=False),
                pa.field("ts", pa.timestamp("ms", tz="UTC"), nullable=False),
                pa.field("node", pa.string()),
                pa.field("tag", pa.string()),
                pa.field("meta", pa.string()),
                pa.field("data", pa.string(), nullable=False),
            ]
        )
        self._writer = pq.ParquetWriter(sink, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    def write(self, record: FileRecord) -> None:
        meta = bytes(record.meta)
        row = {
            "topic": record.topic,
            "seq": record.seq,
            "ts": record.ts,
            "node": record.shown_node,
            "tag": record.shown_tag,
            "meta": None if meta == b"null" else meta.decode(),
            "data": bytes(record.data).decode(),
        }
        self._rows.append(row)
        self._bytes += len(record.data) + len(meta)
        if len(self._rows) >= GROUP_RECORDS or self._bytes >= GROUP_BYTES:
            self._flush()

    def finish(self) -> None:
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        """Write no more, so that what is there cannot be taken for a whole file."""
        self._writer.is_open = False

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(self._pa.Table.from_pylist(self._rows, schema=self._schema))
        self._rows, self._bytes = [], 0


def read_parquet(
    source: IO[bytes], name: str, *, drop_dead_letter_meta: bool
) -> Iterator[FileRecord]:
    """Yield the rows of a file that has a column `data` of JSON text."""
    pa, pq = _pyarrow()
    try:
        file = pq.ParquetFile(source)
        there = [column for column in COLUMNS if column in file.schema_arrow.names]
        if "data" not in there:
            raise RequestError(f"{name} has no column `data`")
        number = 0
        for batch in file.iter_batches(batch_size=1_000, columns=there):
            for row in batch.to_pylist():
                number += 1
                where = f"row {number} of {name}"
                yield settle_letter(
                    _record(row, where=where), drop=drop_dead_letter_meta, where=where
                )
    except pa.ArrowException as error:
        raise RequestError(f"{name} cannot be read as Parquet: {error}") from error


def _record(row: dict[str, Any], *, where: str) -> FileRecord:
    texts = {column: row.get(column) for column in ("node", "tag", "key", "meta", "data")}
    for column, value in texts.items():
        if not isinstance(value, str | None) or (column == "data" and value is None):
            raise RequestError(f"{where}: `{column}` must be text, JSON for data and meta")
    return FileRecord(
        node=texts["node"],
        tag=texts["tag"],
        key=texts["key"],
        meta=NO_META if texts["meta"] is None else _json(texts["meta"], where=where),
        data=_json(texts["data"] or "", where=where),
    )


def _json(text: str, *, where: str) -> Raw:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise RequestError(f"{where} is not JSON: {error}") from None
    return Raw(text.encode())
