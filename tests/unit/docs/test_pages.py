"""The pages hang together: all are in the table of contents, every link leads somewhere."""

import re
import unicodedata
from pathlib import Path

import pytest
from tests.unit.docs.pages import DOCS, ROOT, doc_pages, every_page, name_of, prose, read

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NAV_PAGE = re.compile(r"^\s+- [^:]+: (\S+\.md)$", re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
REPO_PATH = re.compile(r"`((?:src|tests|docs|benchmarks|requirements)/[\w./-]+)`")
MADE_BY_A_COMMAND = {
    "internals/reliability.md",  # make torture
    "internals/benchmarks-engine.md",  # make bench-engine
    "internals/benchmarks-server.md",  # make bench
}


def nav_pages() -> list[str]:
    return NAV_PAGE.findall(read(ROOT / "mkdocs.yml"))


def anchor_of(heading: str) -> str:
    """Return the anchor of a heading, as mkdocs and GitHub make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())


def links() -> list[tuple[Path, str]]:
    found = [(page, target) for page in every_page() for target in LINK.findall(prose(page))]
    return [(page, target) for page, target in found if "://" not in target]


def test_every_page_is_in_the_table_of_contents_once() -> None:
    listed = nav_pages()
    assert sorted(listed) == sorted(set(listed))
    assert {str(page.relative_to(DOCS)) for page in doc_pages()} <= set(listed)


def test_everything_in_the_table_of_contents_exists() -> None:
    there = {str(page.relative_to(DOCS)) for page in doc_pages()}
    assert set(nav_pages()) - there <= MADE_BY_A_COMMAND


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    broken = []
    for page, target in links():
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.is_file():
            broken.append(f"{name_of(page)}: {target}: no such file")
        elif anchor and anchor not in map(anchor_of, HEADING.findall(read(file))):
            broken.append(f"{name_of(page)}: {target}: no such heading")
    assert broken == []


def test_links_of_a_page_stay_inside_the_documentation() -> None:
    """What is built from docs/ must not point out of it."""
    leaving = [
        f"{name_of(page)}: {target}"
        for page, target in links()
        if page.is_relative_to(DOCS)
        and not (page.parent / target.partition("#")[0]).resolve().is_relative_to(DOCS)
    ]
    assert leaving == []


@pytest.mark.parametrize(
    "name", ["ARCHITECTURE.md", "docs/internals/guarantees.md", "docs/internals/testing.md"]
)
def test_every_file_that_is_named_exists(name: str) -> None:
    named = REPO_PATH.findall(read(ROOT / name))
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_page_begins_with_its_title() -> None:
    for page in every_page():
        assert read(page).startswith("# "), name_of(page)


def test_every_word_of_the_engine_has_its_reference_page() -> None:
    for word in ("topics", "append", "diff", "delete", "queues", "routers", "watch"):
        assert (ROOT / f"src/topics/model/{word}.py").is_file()
        assert (DOCS / f"reference/{word}.md").is_file()


def test_decisions_are_numbered_without_a_gap() -> None:
    pages = sorted((DOCS / "internals/decisions").glob("*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        assert read(page).startswith(f"# {page.name[:4]}: ")
        for part in ("**Context.**", "**Choice.**", "**Consequences.**"):
            assert part in read(page), f"{name_of(page)} lacks {part}"
