"""Ranges of files: every line in one of them, blank ones in none."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis.strategies import integers, lists, sampled_from

from topics.errors import OptionError
from topics.kernel import Columns
from topics.pipeline import lines
from topics.pipeline.lines import LineRange, count_lines, pack_ranges, plan_ranges, read_lines


def texts(columns: Columns) -> list[str]:
    assert columns.data is not None
    ends = memoryview(columns.data.offsets).cast("i")
    heap = columns.data.heap
    return [heap[ends[i] : ends[i + 1]].decode().strip() for i in range(columns.count)]


@given(
    found=lists(sampled_from(["1", '"é"', "", "  ", "\t\r", '{"a": [1, 2]}', " 7 ", "x" * 40])),
    size=integers(1, 60),
    window=integers(1, 50),
    ends=sampled_from(["", "\n", "\r\n\n"]),
)
def test_ranges_hold_every_line_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, found: list[str], size: int, window: int, ends: str
) -> None:
    path = tmp_path_factory.mktemp("lines") / "in.jsonl"
    path.write_bytes(("\n".join(found) + ends).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "WINDOW_BYTES", window)
        ranges = plan_ranges(str(path), size=size)
        assert ranges is not None
        read = [[t for c in read_lines(part, ts=1) for t in texts(c)] for part in ranges]
        assert [count_lines(part) for part in ranges] == [len(part) for part in read]
    assert [text for part in read for text in part] == [t.strip() for t in found if t.strip()]


def test_small_files_share_a_task_and_stay_in_order() -> None:
    ranges = [LineRange(f"/in/{n}.jsonl", 0, size) for n, size in enumerate([10, 90, 30, 100, 5])]
    packed = pack_ranges(ranges, size=100)
    assert [part for task in packed for part in task] == ranges
    assert [sum(part.stop for part in task) for task in packed] == [100, 130, 5]
    assert pack_ranges([]) == []


def test_files_of_a_folder_go_by_name_and_only_plain_ones_are_taken(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "_SUCCESS", ".hidden"):
        (tmp_path / name).write_text("1\n")
    ranges = plan_ranges(str(tmp_path))
    assert ranges is not None
    assert [Path(part.path).name for part in ranges] == ["a.jsonl", "b.jsonl"]
    assert plan_ranges(f"file://{tmp_path}") == ranges
    (tmp_path / "c.jsonl.gz").write_bytes(b"")
    assert plan_ranges(str(tmp_path)) is None
    assert plan_ranges("s3://bucket/x.jsonl") is None
    assert plan_ranges(str(tmp_path / "*.jsonl")) is None


def test_a_file_that_an_executor_lacks_is_refused_by_name() -> None:
    with pytest.raises(OptionError, match=r"/nowhere/in.jsonl is not there on .* share"):
        count_lines(LineRange("/nowhere/in.jsonl", 0, 10))
