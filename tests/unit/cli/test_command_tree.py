"""Every command explains itself, can be tried without harm, and is on its reference page."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from topics.cli.app import COMMANDS as LISTED
from topics.cli.app import app
from topics.cli.later import Later

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
DESTROYS = frozenset({"rm", "set", "seek", "redrive", "import", "import-broker", "repair"})
"""Names of commands that remove, move or overwrite. An ack is a worker's word about its own job."""
PRINTS_NO_DATA = frozenset({"serve", "up", "context add", "context use"})
SECRET = re.compile(r"token|secret|password|api-?key", re.IGNORECASE)
NAMES_A_SECRET = frozenset({"--token-env", "--token-file"})
"""They say where a token is to be found."""


def leaves(
    group: TyperGroup, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, TyperCommand | TyperGroup]]:
    for name in group.commands:
        command = loaded(group, name)
        if isinstance(command, TyperGroup):
            if command.invoke_without_command:
                yield " ".join((*path, name)), command
            yield from leaves(command, (*path, name))
        elif isinstance(command, TyperCommand):
            yield " ".join((*path, name)), command


def loaded(group: TyperGroup, name: str) -> object:
    """Return a command as it is when somebody calls it."""
    _, command, _ = group.resolve_command(typer.Context(group), [name])
    return command


def root() -> TyperGroup:
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    return command


COMMANDS = dict(leaves(root()))
flags = {
    name: {flag for parameter in command.params for flag in parameter.opts}
    for name, command in COMMANDS.items()
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_and_all_that_it_takes_have_a_help_text(name: str) -> None:
    command = COMMANDS[name]
    assert command.help
    silent = [
        parameter.name
        for parameter in command.params
        if isinstance(parameter, TyperOption | TyperArgument) and not parameter.help
    ]
    assert silent == []


@pytest.mark.parametrize("name", sorted(n for n in COMMANDS if n.split()[-1] in DESTROYS))
def test_what_destroys_can_be_tried_first(name: str) -> None:
    assert "--dry-run" in flags[name]


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - PRINTS_NO_DATA))
def test_what_prints_data_prints_it_as_json_too(name: str) -> None:
    assert "--json" in flags[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_secret_is_given_as_an_argument(name: str) -> None:
    assert {flag for flag in flags[name] if SECRET.search(flag)} <= NAMES_A_SECRET


def test_every_group_of_commands_has_a_help_text() -> None:
    commands = [loaded(root(), name) for name in root().commands]
    groups = [command for command in commands if isinstance(command, TyperGroup)]
    assert groups
    assert [group.name for group in groups if not group.help] == []


@pytest.mark.parametrize("entry", LISTED, ids=lambda entry: entry.name)
def test_the_list_of_commands_says_what_the_command_says(entry: Later) -> None:
    assert entry.summary == (entry.load().help or "").splitlines()[0]


def test_the_page_has_every_command_and_no_other() -> None:
    text = PAGE.read_text(encoding="utf-8")
    told = set(map(command_in, re.findall(r"`topics ([a-z][a-z-]*(?: [a-z][a-z-]*)*)", text)))
    assert sorted(told ^ COMMANDS.keys()) == []


def command_in(words: str) -> str:
    """Return the command that words begin with; all of them where there is none."""
    parts = words.split()
    starts = (" ".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((start for start in starts if start in COMMANDS), words)
