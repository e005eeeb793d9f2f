"""Files of JSON lines: one record a line."""

from collections.abc import Iterator
from typing import IO, Final

from topics.cli.files.record import FileRecord, encode_line, parse_line, settle_letter
from topics.cli.output import escape_hidden
from topics.errors import RequestError

LINE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Longer than any record that a server takes: what is longer is no file of lines."""


class NdjsonWriter:
    """Writes lines, as many at once as the file gathers."""

    def __init__(self, sink: IO[bytes], *, shown: bool) -> None:
        """`shown`: it is a terminal, which nothing in a record may steer."""
        self._sink = sink
        self._shown = shown

    def write(self, record: FileRecord) -> None:
        line = encode_line(record)
        if self._shown:
            line = escape_hidden(line.decode().removesuffix("\n")).encode() + b"\n"
        self._sink.write(line)

    def finish(self) -> None:
        self._sink.flush()

    def abandon(self) -> None:
        """Leave the lines as they are: each is whole."""


def read_ndjson(
    source: IO[bytes], name: str, *, drop_dead_letter_meta: bool
) -> Iterator[FileRecord]:
    """Yield the records of a file; empty lines, and those that tell of a loss, are none."""
    number = 0
    while line := source.readline(LINE_BYTES_MAX):
        number += 1
        if len(line) == LINE_BYTES_MAX:
            raise RequestError(f"line {number} of {name} is too long for a record")
        if line.isspace():
            continue
        where = f"line {number} of {name}"
        record = parse_line(line, where=where)
        if record is not None:
            yield settle_letter(record, drop=drop_dead_letter_meta, where=where)
