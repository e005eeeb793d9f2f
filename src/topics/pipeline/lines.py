"""JSON lines straight from files that executors see: ranges of bytes, cut at line ends, in order.

Lines go from the file into the kernel without a stop in the JVM; a line is never an object.
Keeps: every line is in exactly one range; blank lines are in none of the records.
"""

import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

import numpy as np
from msgspec import Struct

from topics.errors import DiskFailed, OptionError
from topics.kernel import Column, Columns
from topics.pipeline.local_files import file_exists, list_directory, map_file
from topics.storage.disk.disk import Buffer

RANGE_BYTES: Final = 64 << 20
WINDOW_BYTES: Final = 1 << 20
"""Small, so that memory is used again: fresh pages cost more than the work on them."""
SUFFIXES: Final = (".jsonl", ".ndjson", ".json", ".txt")
_NEWLINE: Final = 10
_BLANKS: Final = b" \t\r\n"


class LineRange(Struct, frozen=True):
    """The lines that begin in [start, stop) of a file."""

    path: str
    start: int
    stop: int


def plan_ranges(path: str, *, size: int = RANGE_BYTES) -> list[LineRange] | None:
    """Cut files, by name, into ranges; None for anything but plain files of this machine."""
    root = path.removeprefix("file://").rstrip("/")
    if "://" in root or not file_exists(root):
        return None
    files = [root]
    with suppress(DiskFailed):  # a file, not a folder
        files = [f"{root}/{n}" for n in list_directory(root) if not n.startswith((".", "_"))]
    if not all(file.endswith(SUFFIXES) for file in files):
        return None
    sizes = [(file, len(map_file(file))) for file in files]
    return [
        LineRange(file, start, min(start + size, end))
        for file, end in sizes
        for start in range(0, end, size)
    ]


def pack_ranges(
    ranges: Iterable[LineRange], *, size: int = RANGE_BYTES
) -> list[tuple[LineRange, ...]]:
    """Gather neighbours until they make a task that pays: files may be many and small."""
    packed: list[tuple[LineRange, ...]] = []
    room = 0
    for part in ranges:
        if room <= 0:
            packed.append(())
            room = size
        packed[-1] += (part,)
        room -= part.stop - part.start
    return packed


def count_lines(part: LineRange) -> int:
    return sum(len(_offsets(window)) - 1 for window in _windows(part))


def read_lines(part: LineRange, *, ts: int) -> Iterator[Columns]:
    """Show the lines of a range as columns; whitespace around them is left to the encoder."""
    for window in _windows(part):
        offsets = _offsets(window)
        count = len(offsets) - 1
        if count:
            texts = Column(offsets.tobytes(), bytes(window), b"", 0)
            times = ts.to_bytes(8, "little") * count
            yield Columns(count, b"", times, texts, None, None, None)


def _windows(part: LineRange) -> Iterator[Buffer]:
    """Yield bytes that end with a line."""
    if not file_exists(part.path):
        raise OptionError(
            f"{part.path} is not there on {socket.gethostname()}: load from a place that all "
            "executors share"
        )
    content = map_file(part.path)
    at = 0 if part.start == 0 else _behind_line(content, part.start - 1)
    stop = _behind_line(content, part.stop - 1)
    while at < stop:
        end = min(stop, _behind_line(content, at + WINDOW_BYTES))
        yield memoryview(content)[at:end]
        at = end


def _behind_line(content: Buffer, at: int) -> int:
    """Return the first byte behind the line end at or after `at`."""
    step = 1 << 16
    while at < len(content):
        found = bytes(content[at : at + step]).find(b"\n")
        if found >= 0:
            return at + found + 1
        at += step
    return len(content)


def _offsets(window: Buffer) -> Any:  # noqa: ANN401 - numpy's array
    """Return where lines begin; a blank one becomes the leading whitespace of the next."""
    found = np.flatnonzero(np.frombuffer(window, dtype=np.uint8) == _NEWLINE) + 1
    ends = found if len(found) and found[-1] == len(window) else np.append(found, len(window))
    starts = np.concatenate(([0], ends[:-1]))
    first = np.frombuffer(window, dtype=np.uint8)[starts]
    blank = np.zeros(len(starts), dtype=bool)
    for i in np.flatnonzero(first <= _BLANKS[0]):
        blank[i] = not bytes(window[starts[i] : ends[i]]).strip(_BLANKS)
    kept = ends[~blank]
    if len(kept) == 0:
        return np.zeros(1, dtype=np.int32)
    kept[-1] = len(window)  # blank lines at the end follow the last line
    return np.concatenate(([0], kept)).astype(np.int32)
