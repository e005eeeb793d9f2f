"""A person waits for help and for the Tab key: neither imports what it does not need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from topics.cli.app import COMMANDS

SOURCE = Path(__file__).parents[3] / "src"
PROGRAM = """
import sys
from topics.cli.main import main
sys.argv[0] = "topics"
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
HEAVY = frozenset(
    {
        *("pyspark", "pyarrow", "pandas", "numpy", "uvloop", "httptools", "h2", "wsproto", "httpx"),
        *("asyncio", "topics.api", "topics.engine", "topics.embedded", "topics.pipeline"),
        *("topics.broker", "topics.console", "topics.storage"),
    }
)
CLIENT = frozenset({"h11", "topics.client"})


def imported_by(*arguments: str, completing: str = "") -> set[str]:
    """Run the command; return the modules that it had in the end."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    if completing:
        environment |= {"_TOPICS_COMPLETE": "complete_bash", "COMP_WORDS": completing}
        environment |= {
            "COMP_CWORD": str(len(completing.split()) - 1),
            "TOPICS_URL": "http://[::1]:9",
        }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout, "nothing was completed"
    return set(done.stderr.split())


@pytest.mark.parametrize("arguments", [["--help"], ["topic", "--help"], ["topic", "ls", "--help"]])
def test_help_needs_no_server_engine_or_client(arguments: list[str]) -> None:
    assert imported_by(*arguments) & (HEAVY | CLIENT) == set()


def test_the_list_of_commands_imports_none_of_them() -> None:
    places = {command.place.partition(":")[0] for command in COMMANDS}
    assert imported_by("--help") & places == set()


def test_the_version_needs_no_table() -> None:
    assert imported_by("version") & (HEAVY | CLIENT | {"rich"}) == set()


@pytest.mark.parametrize("words", ["topics to", "topics topic sh", "topics put --js"])
def test_a_word_is_completed_without_what_the_command_needs(words: str) -> None:
    assert imported_by(completing=words) & (HEAVY | CLIENT | {"rich"}) == set()


@pytest.mark.parametrize("words", ["topics pipeline la", "topics verify --js", "topics serve --sh"])
def test_no_completion_starts_spark_or_a_server(words: str) -> None:
    assert imported_by(completing=words) & {"pyspark", "pyarrow", "uvloop", "topics.api"} == set()
