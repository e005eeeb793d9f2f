"""What the tests of the documentation share: which pages there are, and what is in them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
TOP_PAGES = tuple(
    ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
)
EXAMPLE_PAGES = tuple(sorted((ROOT / "examples").rglob("README.md")))
RUNNABLE = ("sh", "python")
_STEP = re.compile(
    r"^```(?P<kind>sh|python)\n(?P<block>.*?)^```$"
    r"|[Oo]pen (?P<url>http://localhost:[\w/.-]*\w)"
    r"|When it says `(?P<word>[^`]+)`",
    re.MULTILINE | re.DOTALL,
)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def doc_pages() -> list[Path]:
    return sorted(DOCS.rglob("*.md"))


def every_page() -> list[Path]:
    return [*TOP_PAGES, *EXAMPLE_PAGES, *doc_pages()]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def code_blocks(page: Path, language: str) -> list[str]:
    return [block for found, block in _FENCE.findall(read(page)) if found == language]


def runnable_blocks(page: Path) -> list[tuple[str, str]]:
    """Return what a reader would type, in order: (`sh` or `python`, code)."""
    return [(found, block) for found, block in _FENCE.findall(read(page)) if found in RUNNABLE]


def steps_of(page: Path) -> list[tuple[str, str]]:
    """Return all that a reader does, in order.

    Code to run (`sh`, `python`), a page to open (`open`), or a word to wait for (`says`).
    """
    return [
        (
            found["kind"] or ("open" if found["url"] else "says"),
            found["block"] or found["url"] or found["word"],
        )
        for found in _STEP.finditer(read(page))
    ]


def prose(page: Path) -> str:
    """Return the page without its code blocks."""
    return _FENCE.sub("", read(page))
