"""The page about testing gives figures: they are true, and not of long ago."""

import ast
import re
from pathlib import Path

import pytest
from tests.crash.scenarios import SCENARIOS
from tests.crash.test_cut_points import SEEDS, SHARDS
from tests.unit.docs.pages import DOCS, ROOT, read

PAGE = DOCS / "internals/testing.md"
SHOWN = [
    (name, int(number))
    for name, number in re.findall(r"^\| `tests/(\w+)` \| (\d+) \|", read(PAGE), re.MULTILINE)
]
STALE_FACTOR = 2


def count_tests(directory: Path) -> int:
    if directory.name == "planted":
        return len(list(directory.glob("*.patch")))
    return sum(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        for file in directory.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
    )


def test_every_kind_of_test_is_in_the_table() -> None:
    kinds = {path.parent for path in (ROOT / "tests").glob("*/*") if path.name != "__pycache__"}
    programs = {"torture", "torture_pipeline", "cluster"}
    assert {name for name, _ in SHOWN} >= {kind.name for kind in kinds} - programs


@pytest.mark.parametrize(("name", "shown"), SHOWN)
def test_there_are_as_many_tests_as_the_page_says(name: str, shown: int) -> None:
    assert shown <= count_tests(ROOT / "tests" / name) < STALE_FACTOR * max(shown, 10)


def test_there_are_as_many_crashes_as_the_page_says() -> None:
    found = re.findall(r"more than \*\*([\d,]+)\*\*", read(PAGE))
    cut_points, crashes = (int(number.replace(",", "")) for number in found)
    actual = sum(scenario.cut_points_min for scenario in SCENARIOS)
    assert cut_points < actual < STALE_FACTOR * cut_points
    assert crashes < actual * len(SHARDS) * len(SEEDS) < STALE_FACTOR * crashes
