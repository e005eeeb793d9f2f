"""Following a page from top to bottom: its commands, its Python, the pages it opens.

Where a block says what it prints, in lines that are only a comment, it must print that; `…` stands
for anything.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from tests.unit.docs.pages import EXAMPLE_PAGES, ROOT, name_of, steps_of
from tests.unit.docs.shell import Terminal

SHELL_EXPECTED = re.compile(r"^# (.+)$", re.MULTILINE)
EXPECTED = re.compile(r"^(?: *print\(.*\)  )?# (.+)$", re.MULTILINE)


def follow(
    page: Path,
    terminal: Terminal,
    capsys: pytest.CaptureFixture[str],
    *,
    leaves_out: Callable[[str], bool] = lambda _: False,
    before: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Do all that a page says, with the server running that a page of an example speaks of.

    `before` has what a reader is patient about: a script, by what the block after it has.
    """
    names: dict[str, object] = {"__name__": "__main__"}
    if page in EXAMPLE_PAGES:
        terminal.run("make run")
    for number, (kind, text) in enumerate(steps_of(page), start=1):
        if leaves_out(text):
            continue
        for script in (script for what, script in before.items() if what in text):
            terminal.run(script)
        place = f"{name_of(page)}, step {number}"
        if kind == "python":
            exec(compile(terminal.here(text), place, "exec"), names)
            _compare(capsys.readouterr().out.splitlines(), EXPECTED.findall(text), place)
        else:
            _type(terminal, kind, text, place)


def _type(terminal: Terminal, kind: str, text: str, place: str) -> None:
    if kind == "open":
        terminal.open(terminal.here(text))
    elif kind == "says":
        terminal.wait_for(text)
    else:
        _compare(terminal.run(text), SHELL_EXPECTED.findall(text), place)


def _compare(printed: list[str], expected: list[str], place: str) -> None:
    if expected[:1] == ["…"]:  # of what somebody else said before, such as Spark
        del expected[0], printed[: -len(expected)]
    if expected:
        wanted = ".*".join(map(re.escape, "\n".join(expected).split("…")))
        assert re.fullmatch(wanted, "\n".join(printed)), f"{place}: {printed}"


def fences_of(page: Path) -> int:
    """Return how many blocks a page has, of whatever language."""
    text = page.read_text(encoding="utf-8")
    return len(re.findall(r"^\s*(?:```|~~~).*$", text, re.MULTILINE)) // 2


def is_for_spark(block: str) -> bool:
    return "topics pipeline" in block


TUTORIALS = sorted((ROOT / "docs/start").glob("*.md"))
SPARK_PAGES = [
    page
    for page in (*TUTORIALS, *EXAMPLE_PAGES)
    if any(is_for_spark(text) for _, text in steps_of(page))
]
"""Followed with the tests of Spark: `tests/pipeline/test_spark_pages.py`."""
