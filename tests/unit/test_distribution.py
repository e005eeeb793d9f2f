"""What is installed is `topics-log`: `topics` in the package index is somebody else's."""

import re
import tomllib
from pathlib import Path

import topics

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PLACES = ("*.md", "docs/**/*.md", "examples/**/*", "src/**/*.py", "deploy/**/*")
_EXTRAS = "|".join(PROJECT["optional-dependencies"])
STRANGER = re.compile(
    rf"(?<![\w-])topics\[(?:{_EXTRAS})[\],]|pip install (?:-\S+ )*[\"']?topics(?![\w-])"
)


def test_the_distribution_is_not_the_strangers() -> None:
    assert PROJECT["name"] == "topics-log"
    assert PROJECT["scripts"] == {"topics": "topics.cli.main:main"}
    extras = str(PROJECT["optional-dependencies"])
    assert STRANGER.search(extras) is None


def test_its_version_is_said_once() -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", topics.__version__)


def test_no_page_and_no_hint_installs_the_strangers_package() -> None:
    files = [file for place in PLACES for file in ROOT.glob(place) if file.is_file()]
    assert len(files) > 400
    found = [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in files
        if file.suffix in {".md", ".py", ".toml", ".yml", ".yaml", ".service", ""}
        for line in file.read_text(encoding="utf-8").splitlines()
        if STRANGER.search(line)
    ]
    assert found == []
