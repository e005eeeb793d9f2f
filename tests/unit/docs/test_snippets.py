"""The snippets of the documentation run, and print what their comments say.

The blocks of one page run in order, as one program, in an empty directory. A `print(…)  # text`
must print that text; a line that is only a comment is a line of output too. The README and the
tutorials are followed with their shell commands, where `…` in an output stands for anything.
"""

from pathlib import Path

import pytest
from tests.unit.docs.pages import (
    EXAMPLE_PAGES,
    ROOT,
    code_blocks,
    every_page,
    name_of,
    runnable_blocks,
)
from tests.unit.docs.shell import Terminal
from tests.unit.docs.walk import (
    EXPECTED,
    SPARK_PAGES,
    TUTORIALS,
    fences_of,
    follow,
    is_for_spark,
)

FOLLOWED = [ROOT / "README.md", *TUTORIALS, *EXAMPLE_PAGES]
"""Pages to follow from top to bottom, in a terminal and in Python, with a real server."""
WALKED = [page for page in FOLLOWED if page not in SPARK_PAGES or page in EXAMPLE_PAGES]
"""Here; of an example with a part for Spark the rest."""
NOT_TO_TYPE = {"examples/webhooks/README.md": 1}
"""Blocks that are drawings."""
PAGES = [page for page in every_page() if page not in FOLLOWED and code_blocks(page, "python")]


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
    with Terminal(tmp_path) as terminal:
        follow(page, terminal, capsys, leaves_out=is_for_spark)


def test_the_pages_that_teach_have_snippets() -> None:
    taught = set(map(name_of, [*PAGES, *FOLLOWED]))
    words = (
        *("topics", "append", "diff", "delete", "queues"),
        *("errors", "embedded", "aio", "testing"),
    )
    pages = {f"docs/reference/{word}.md" for word in words}
    assert pages | {"README.md", "docs/start/quickstart.md"} <= taught


@pytest.mark.parametrize("page", FOLLOWED, ids=map(name_of, FOLLOWED))
def test_no_block_of_a_page_to_follow_is_left_out(page: Path) -> None:
    """A fence of another language, or one that is written another way, would not be run."""
    drawings = NOT_TO_TYPE.get(name_of(page), 0)
    assert fences_of(page) - drawings == len(runnable_blocks(page)) > 0
