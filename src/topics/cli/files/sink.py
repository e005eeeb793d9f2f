"""Where an export goes: stdout, or a file that is there when it is whole, and not before."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import ENOSPC
from pathlib import Path
from typing import IO, Final, Literal

from topics.cli.files.ndjson import NdjsonWriter
from topics.cli.files.parquet import ParquetWriter
from topics.errors import ConfigError, DiskFull

STDOUT: Final = "-"
Format = Literal["ndjson", "parquet"]
Writer = NdjsonWriter | ParquetWriter


@contextmanager
def open_writer(output: str, kind: Format) -> Iterator[Writer]:
    """Give a writer; at the end its file gets its name, after an error it is gone."""
    if output == STDOUT:
        with _finished(_writer(_stdout(kind), kind)) as writer:
            yield writer
        sys.stdout.flush()
        return
    try:
        with _open_file(output, kind) as writer:
            yield writer
    except BrokenPipeError:
        raise
    except OSError as problem:
        text = f"{output} cannot be written: {problem.strerror or problem}"
        raise (DiskFull if problem.errno == ENOSPC else ConfigError)(text) from problem


@contextmanager
def _open_file(output: str, kind: Format) -> Iterator[Writer]:
    path = Path(output)
    if path.exists() and not path.is_file():  # a pipe or a device: it has no other name to get
        with path.open("wb") as file, _finished(_writer(file, kind)) as writer:
            yield writer
        return
    path = path.resolve()  # a link stays one
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            with _finished(_writer(file, kind)) as writer:
                yield writer
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink()


@contextmanager
def _finished(writer: Writer) -> Iterator[Writer]:
    try:
        yield writer
        writer.finish()
    except BaseException:
        writer.abandon()
        raise


def format_of(output: str, asked: Format | None) -> Format:
    """Return the format that was asked for, else the one that the name of the file says."""
    if asked is not None:
        return asked
    return "parquet" if output.endswith(".parquet") else "ndjson"


def _writer(file: IO[bytes], kind: Format) -> Writer:
    return ParquetWriter(file) if kind == "parquet" else NdjsonWriter(file, shown=file.isatty())


def _stdout(kind: Format) -> IO[bytes]:
    if kind == "parquet" and sys.stdout.isatty():
        raise ConfigError("Parquet is not for a terminal: name a file by -o")
    return sys.stdout.buffer
