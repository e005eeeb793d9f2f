"""The old broker's files: every line is read, or named with its reason."""

import pytest

from topics.broker.old import files
from topics.broker.old.files import (
    OldFile,
    OldLine,
    OldOffset,
    Problem,
    find_files,
    read_lines,
    read_offsets,
)
from topics.errors import DiskFailed
from topics.testing.hostile_disk import HostileDisk
from topics.testing.hostile_faults import FaultPlan

FILE = OldFile("orders-0.log", "orders", 0, 0)


def disk_with(**contents: bytes) -> HostileDisk:
    """Return a disk with files; `_` in a name stands for `-`, `__` for `.`."""
    disk = HostileDisk()
    for name, content in contents.items():
        disk.create(name.replace("__", ".").replace("_", "-")).write_at(0, [content])
    return disk


def lines_of(content: bytes, *, max_value_bytes: int = 100) -> list[OldLine | Problem]:
    disk = disk_with(orders_0__log=content)
    met: list[int] = []
    found = list(read_lines(disk, FILE, max_value_bytes=max_value_bytes, meter=met.append))
    assert sum(met) == len(content)
    return found


def test_lines_are_offset_colon_value() -> None:
    assert lines_of("0:created\n1:paid: 3,50 €\n7:\n8: x \r\n".encode()) == [
        OldLine(1, 0, "created"),
        OldLine(2, 1, "paid: 3,50 €"),
        OldLine(3, 7, ""),
        OldLine(4, 8, " x \r"),
    ]
    assert lines_of(b"") == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "is not <offset>:<value>"),
        (b"no colon", "is not <offset>:<value>"),
        (b"x:v", "does not begin with an offset"),
        (b"-1:v", "does not begin with an offset"),
        (b" 1:v", "does not begin with an offset"),
        (b"18446744073709551615:v", "does not begin with an offset"),
        (b"5:v", "offset 5 comes after offset 5"),
        (b"4:v", "offset 4 comes after offset 5"),
        (b"6:\xff", "is not valid UTF-8"),
        (b"6:" + b"x" * 200, "is longer than a record may be"),
    ],
)
def test_a_bad_line_is_named_and_those_around_it_are_read(line: bytes, why: str) -> None:
    assert lines_of(b"5:before\n" + line + b"\n7:after\n") == [
        OldLine(1, 5, "before"),
        Problem("orders-0.log", 2, why),
        OldLine(3, 7, "after"),
    ]


def test_a_last_line_without_its_end_was_cut_off() -> None:
    assert lines_of(b"0:a\n1:b") == [
        OldLine(1, 0, "a"),
        Problem("orders-0.log", 2, "has no line break at its end: it was cut off"),
    ]


def test_cuts_of_the_reader_are_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"".join(b"%d:value %d\n" % (n, n) for n in range(50))
    whole = lines_of(content)
    for size in (1, 2, 7, 64):
        monkeypatch.setattr(files, "_PIECE_BYTES", size)
        assert lines_of(content) == whole


def test_a_file_that_may_only_be_read_is_read() -> None:
    disk = disk_with(orders_0__log=b"0:a\n1:b\n")
    disk.arm(FaultPlan().fail(operation="open", forever=True))
    found = list(read_lines(disk, FILE, max_value_bytes=10, meter=lambda _: None))
    assert found == [OldLine(1, 0, "a"), OldLine(2, 1, "b")]


def test_a_bad_sector_is_an_error_not_an_end() -> None:
    disk = disk_with(orders_0__log=b"0:a\n")
    disk.arm(FaultPlan().fail(operation="read_at", forever=True))
    with pytest.raises(DiskFailed):
        list(read_lines(disk, FILE, max_value_bytes=10, meter=lambda _: None))


def test_logs_are_found_by_their_names() -> None:
    disk = HostileDisk()
    names = ("a-b-0.log", "orders-0.log", "orders-12.log", "notes.txt", "offsets.json")
    bad = (
        ".log",
        "orders.log",
        "orders-01.log",
        "orders--1.log",
        "-0.log",
        "ü-0.log",
        "x-1024.log",
    )
    for name in (*names, *bad):
        disk.create(name).write_at(0, [b"0:x\n"])
    found = list(find_files(disk))
    assert {file for file in found if isinstance(file, OldFile)} == {
        OldFile("a-b-0.log", "a-b", 0, 4),
        OldFile("orders-0.log", "orders", 0, 4),
        OldFile("orders-12.log", "orders", 12, 4),
        OldFile("orders--1.log", "orders-", 1, 4),
    }
    refused = {problem.file for problem in found if isinstance(problem, Problem)}
    assert refused == set(bad) - {"orders--1.log"}


def test_offsets_are_group_topic_partition_offset() -> None:
    disk = disk_with(
        offsets__json=b'{"g":{"orders":{"0":3,"1":0}},"h":{"x":{"0":18446744073709551615}}}'
    )
    assert list(read_offsets(disk)) == [
        OldOffset("g", "orders", 0, 3),
        OldOffset("g", "orders", 1, 0),
        OldOffset("h", "x", 0, 2**64 - 1),
    ]
    assert list(read_offsets(HostileDisk())) == []


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"\xff", b"[]", b"7", b"null", b'{"g":7}', b'{"g":{"t":[1]}}', b'{"g":null}'),
        *(b'{"g":{"t":{"0":-1}}}', b'{"g":{"t":{"0":1.5}}}', b'{"g":{"t":{"0":true}}}'),
        *(b'{"g":{"t":{"0":"1"}}}', b'{"g":{"t":{"x":1}}}', b'{"g":{"t":{"-1":1}}}'),
        b'{"g":{"t":{"0":18446744073709551616}}}',
    ],
)
def test_offsets_of_another_shape_are_named(content: bytes) -> None:
    (problem,) = read_offsets(disk_with(offsets__json=content))
    assert isinstance(problem, Problem)
    assert str(problem).startswith("offsets.json: ")


def test_a_good_offset_beside_a_bad_one_is_taken() -> None:
    found = list(read_offsets(disk_with(offsets__json=b'{"g":{"t":{"0":-1,"1":2}},"h":[]}')))
    assert [item for item in found if isinstance(item, OldOffset)] == [OldOffset("g", "t", 1, 2)]
    assert len(found) == 3
