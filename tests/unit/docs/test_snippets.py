"""Every Python snippet of the documentation runs, and prints what its comments say.

The blocks of one page run in order, as one program, in an empty directory. A `print(…)  # text`
must print that text; a line that is only a comment is a line of output too.
"""

import re
from pathlib import Path

import pytest
from tests.unit.docs.pages import code_blocks, every_page, name_of

EXPECTED = re.compile(r"^(?: *print\(.*\)  )?# (.+)$", re.MULTILINE)
PAGES = [page for page in every_page() if code_blocks(page, "python")]


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


def test_the_pages_that_teach_have_snippets() -> None:
    taught = set(map(name_of, PAGES))
    words = (
        *("topics", "append", "diff", "delete", "queues"),
        *("errors", "embedded", "aio", "testing"),
    )
    pages = {f"docs/reference/{word}.md" for word in words}
    assert pages | {"README.md", "docs/start/quickstart.md"} <= taught
