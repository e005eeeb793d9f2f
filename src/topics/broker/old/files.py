"""The files of the old broker: `<topic>-<n>.log`, lines `<offset>:<value>`, and `offsets.json`.

Reads and judges them; changes nothing. Keeps: memory does not grow with a file; every line is
either read or becomes a `Problem` that names file, line and reason.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from topics.broker.line import LineBuffer, TooLong
from topics.errors import DiskFailed, RequestError
from topics.limits import MAX_PARTITIONS, check_topic_name
from topics.model.diff import MAX_SEQ
from topics.storage.disk.disk import Disk

OFFSETS: Final = "offsets.json"
MAX_OFFSETS_BYTES: Final = 64 << 20
_PIECE_BYTES: Final = 256 * 1024
_OFFSET_BYTES: Final = 21
_FILE_NAME: Final = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})\.log", re.DOTALL)
_OFFSET: Final = re.compile(rb"[0-9]{1,20}")


class Problem(msgspec.Struct, frozen=True):
    """Something that could not be read or taken over."""

    file: str
    line: int
    """From 1; 0 where it is about the file as a whole."""
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.message}"


class OldLine(NamedTuple):
    """One message of the old broker."""

    number: int
    offset: int
    value: str


class OldFile(NamedTuple):
    """The log of one partition."""

    name: str
    topic: str
    partition: int
    size: int


class OldOffset(NamedTuple):
    """How far a group had come: the next offset that it would have read."""

    group: str
    topic: str
    partition: int
    offset: int

    @property
    def place(self) -> str:
        return f"group {self.group!r}, topic {self.topic!r}, partition {self.partition}"


def find_files(disk: Disk) -> Iterator[OldFile | Problem]:
    """Name the logs of a directory; other files are none of ours."""
    for name in disk.list(""):
        if not name.endswith(".log"):
            continue
        found = _FILE_NAME.fullmatch(name)
        if found is None:
            yield Problem(name, 0, "is not named <topic>-<n>.log")
            continue
        topic, partition = found[1], int(found[2])
        try:
            check_topic_name(topic)
            size = disk.size(name)
        except (RequestError, DiskFailed) as error:
            yield Problem(name, 0, str(error))
            continue
        if partition >= MAX_PARTITIONS:
            yield Problem(name, 0, f"a topic has at most {MAX_PARTITIONS} partitions")
            continue
        yield OldFile(name, topic, partition, size)


def read_lines(
    disk: Disk, file: OldFile, *, max_value_bytes: int, meter: Callable[[int], None]
) -> Iterator[OldLine | Problem]:
    """Read one log from its start; offsets rise, or the line is a problem."""
    lines = LineBuffer(max_value_bytes + _OFFSET_BYTES, crlf=False)
    number, last_offset = 0, -1
    for piece in _pieces(disk, file):
        lines.feed(piece)
        meter(len(piece))
        while (line := lines.take()) is not None:
            number += 1
            found = _read_line(file, number, line, last_offset=last_offset)
            if isinstance(found, OldLine):
                last_offset = found.offset
            yield found
    if lines.is_inside_line:
        yield Problem(file.name, number + 1, "has no line break at its end: it was cut off")


def read_offsets(disk: Disk) -> Iterator[OldOffset | Problem]:
    """Read the committed offsets; no file is fine."""
    if not disk.exists(OFFSETS):
        return
    try:
        if disk.size(OFFSETS) > MAX_OFFSETS_BYTES:
            yield Problem(OFFSETS, 0, f"has more than {MAX_OFFSETS_BYTES} bytes")
            return
        groups = msgspec.json.decode(disk.read(OFFSETS))
    except (DiskFailed, msgspec.DecodeError, UnicodeDecodeError) as error:
        yield Problem(OFFSETS, 0, f"cannot be read: {error}")
        return
    for group, topics in _members(groups):
        for topic, partitions in _members(topics):
            for partition, offset in _members(partitions):
                yield _read_offset(group, topic, partition, offset)


def _members(value: object) -> Iterator[tuple[str | None, object]]:
    """Yield what an object holds; where something else is, that, under no name."""
    if isinstance(value, dict):
        yield from value.items()
    else:
        yield None, value


def _read_offset(
    group: str | None, topic: str | None, partition: str | None, offset: object
) -> OldOffset | Problem:
    if group is None or topic is None or partition is None:
        where = ", ".join(repr(name) for name in (group, topic) if name is not None) or "the file"
        return Problem(OFFSETS, 0, f"{where}: is not group → topic → partition → offset")
    if not partition.isascii() or not partition.isdigit() or len(partition) > 10:
        return Problem(OFFSETS, 0, f"{group!r}, {topic!r}: {partition!r} is no partition")
    found = OldOffset(group, topic, int(partition), 0)
    if type(offset) is not int or not 0 <= offset <= MAX_SEQ:
        return Problem(OFFSETS, 0, f"{found.place}: {offset!r} is no offset")
    return found._replace(offset=offset)


def _read_line(
    file: OldFile, number: int, line: bytes | TooLong, *, last_offset: int
) -> OldLine | Problem:
    try:
        offset, value = _split_line(line)
    except ValueError as why:
        return Problem(file.name, number, str(why))
    if offset <= last_offset:
        return Problem(file.name, number, f"offset {offset} comes after offset {last_offset}")
    return OldLine(number, offset, value)


def _split_line(line: bytes | TooLong) -> tuple[int, str]:
    if isinstance(line, TooLong):
        raise ValueError("is longer than a record may be")  # noqa: TRY004 - of a wrong size
    head, colon, value = line.partition(b":")
    if not colon:
        raise ValueError("is not <offset>:<value>")
    if _OFFSET.fullmatch(head) is None or int(head) >= MAX_SEQ:
        raise ValueError("does not begin with an offset")
    try:
        return int(head), value.decode()
    except UnicodeDecodeError:
        raise ValueError("is not valid UTF-8") from None


def _pieces(disk: Disk, file: OldFile) -> Iterator[bytes]:
    try:
        opened = disk.open(file.name)
    except DiskFailed:
        # We may only read it. A map is the second choice: a bad sector under it ends the process.
        view = disk.map(file.name)
        for start in range(0, len(view), _PIECE_BYTES):
            yield bytes(view[start : start + _PIECE_BYTES])
        return
    try:
        start = 0
        while piece := opened.read_at(start, _PIECE_BYTES):
            yield piece
            start += len(piece)
    finally:
        opened.close()
