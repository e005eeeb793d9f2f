"""A file to import: what it is, how many records it has, and the name it is known by again.

The name is made from all that is in the file. So a copy of it is the same file, a changed one is
another, and two that only begin alike are never taken for one.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import xxhash
from msgspec import Struct

from topics.cli.files.ndjson import read_ndjson
from topics.cli.files.parquet import read_parquet
from topics.cli.files.record import FileRecord
from topics.errors import ConfigError, RequestError

STDIN: Final = "-"
PARQUET_MAGIC: Final = b"PAR1"
PIECE_BYTES: Final = 1024 * 1024


class Source(Struct, frozen=True, kw_only=True):
    """One open file that was looked through, from its begin to its end."""

    name: str
    file: IO[bytes]
    identity: str
    count: int
    version: tuple[int, int]
    drop_dead_letter_meta: bool

    def records(self) -> Iterator[FileRecord]:
        """Yield its records once more; a file that is another one by now is refused at its end."""
        yield from _records(self.file, self.name, drop_dead_letter_meta=self.drop_dead_letter_meta)
        if _version(self.file) != self.version:
            raise RequestError(f"{self.name} changed while it was read")


@contextmanager
def open_source(name: str, *, drop_dead_letter_meta: bool = False) -> Iterator[Source]:
    """Open a file, or stdin, and look through all of it: what cannot be read is told now."""
    try:
        with _opened(name) as file:
            version = _version(file)
            found = _records(file, name, drop_dead_letter_meta=drop_dead_letter_meta)
            count = sum(1 for _ in found)
            yield Source(
                name=name,
                file=file,
                identity=identity_of(file),
                count=count,
                version=version,
                drop_dead_letter_meta=drop_dead_letter_meta,
            )
    except OSError as problem:
        raise ConfigError(f"{name} cannot be read: {problem.strerror or problem}") from problem


def identity_of(file: IO[bytes]) -> str:
    file.seek(0)
    digest = xxhash.xxh3_128()
    while piece := file.read(PIECE_BYTES):
        digest.update(piece)
    return digest.hexdigest()


def _records(file: IO[bytes], name: str, *, drop_dead_letter_meta: bool) -> Iterator[FileRecord]:
    file.seek(0)
    is_parquet = file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
    file.seek(0)
    read = read_parquet if is_parquet else read_ndjson
    return read(file, name, drop_dead_letter_meta=drop_dead_letter_meta)


def _opened(name: str) -> IO[bytes]:
    file = sys.stdin.buffer if name == STDIN else Path(name).open("rb")  # noqa: SIM115 - the caller closes it
    if file.seekable():
        return file
    with file:  # of a pipe: kept aside first, for only what is there as a whole has an identity
        spool = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        shutil.copyfileobj(file, spool)
        spool.flush()
    return spool


def _version(file: IO[bytes]) -> tuple[int, int]:
    """Return what changes when somebody writes to the file."""
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns
