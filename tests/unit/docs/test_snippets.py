"""The snippets of the documentation run, and print what their comments say.

The blocks of one page run in order, as one program, in an empty directory. A `print(…)  # text`
must print that text; a line that is only a comment is a line of output too. The README and the
tutorials are followed with their shell commands, where `…` in an output stands for anything.
"""

import re
from pathlib import Path

import pytest
from tests.unit.docs.pages import (
    DOCS,
    ROOT,
    code_blocks,
    every_page,
    name_of,
    read,
    runnable_blocks,
)
from tests.unit.docs.shell import Terminal

SHELL_EXPECTED = re.compile(r"^# (.+)$", re.MULTILINE)
EXPECTED = re.compile(r"^(?: *print\(.*\)  )?# (.+)$", re.MULTILINE)
WALKED = [
    ROOT / "README.md",
    *(
        DOCS / f"start/{name}.md"
        for name in ("quickstart", "embedded", "event-stream", "job-queue")
    ),
]
"""Pages to follow from top to bottom, in a terminal and in Python, with a real server."""
PAGES = [page for page in every_page() if page not in WALKED and code_blocks(page, "python")]


@pytest.mark.parametrize("page", PAGES, ids=map(name_of, PAGES))
def test_the_snippets_of_a_page_run_and_print_what_they_say(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for number, block in enumerate(code_blocks(page, "python"), start=1):
        source = compile(block, f"{name_of(page)}, snippet {number}", "exec")
        exec(source, names)
        printed = capsys.readouterr().out.splitlines()
        expected = EXPECTED.findall(block)
        if expected:
            assert printed == expected


@pytest.mark.parametrize("page", WALKED, ids=map(name_of, WALKED))
def test_a_page_can_be_followed_from_top_to_bottom(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    with Terminal(tmp_path) as terminal:
        for number, (language, block) in enumerate(runnable_blocks(page), start=1):
            place = f"{name_of(page)}, block {number}"
            if language == "sh":
                printed = terminal.run(block)
                expected = SHELL_EXPECTED.findall(block)
            else:
                exec(compile(terminal.here(block), place, "exec"), names)
                printed = capsys.readouterr().out.splitlines()
                expected = EXPECTED.findall(block)
            if expected:
                wanted = ".*".join(map(re.escape, "\n".join(expected).split("…")))
                assert re.fullmatch(wanted, "\n".join(printed)), f"{place}: {printed}"


def test_the_pages_that_teach_have_snippets() -> None:
    taught = set(map(name_of, [*PAGES, *WALKED]))
    words = (
        *("topics", "append", "diff", "delete", "queues"),
        *("errors", "embedded", "aio", "testing"),
    )
    pages = {f"docs/reference/{word}.md" for word in words}
    assert pages | {"README.md", "docs/start/quickstart.md"} <= taught


@pytest.mark.parametrize("page", WALKED, ids=map(name_of, WALKED))
def test_no_block_of_a_page_to_follow_is_left_out(page: Path) -> None:
    """A fence of another language, or one that is written another way, would not be run."""
    fences = re.findall(r"^\s*(?:```|~~~).*$", read(page), re.MULTILINE)
    assert len(fences) == 2 * len(runnable_blocks(page)) > 0
