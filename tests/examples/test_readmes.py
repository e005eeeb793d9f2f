"""The pages of the examples name programs and flags that are there."""

import re
from pathlib import Path

import pytest
from tests.unit.docs.pages import EXAMPLE_PAGES, ROOT, code_blocks, name_of

COMMAND = re.compile(r"^python (examples/\S+\.py)(.*)$", re.MULTILINE)
PAGES = [page for page in EXAMPLE_PAGES if page.parent != ROOT / "examples"]


@pytest.mark.parametrize("page", PAGES, ids=map(name_of, PAGES))
def test_every_command_of_a_page_can_be_typed(page: Path) -> None:
    commands = COMMAND.findall("".join(code_blocks(page, "sh")))
    assert commands
    for program, arguments in commands:
        source = (ROOT / program).read_text(encoding="utf-8")
        flags = re.findall(r"--[a-z-]+", arguments)
        assert [flag for flag in flags if f'"{flag}"' not in source] == []


def test_every_program_is_on_the_page_of_its_example() -> None:
    for program in (ROOT / "examples").glob("*/*.py"):
        page = (program.parent / "README.md").read_text(encoding="utf-8")
        assert program.name in page, name_of(program)
