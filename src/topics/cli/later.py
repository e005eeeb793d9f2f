"""Commands that are imported when they are called: help and completion do without them.

Keeps: what the list of commands shows costs no import of theirs. A command that is meant, by its
name as the first word, is imported and built whole.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command


class Later(NamedTuple):
    """A command or a group of commands, and where it is."""

    name: str
    place: str
    """`module:attribute`: a function, or a `Typer`."""
    summary: str
    """The first line of its help; a test holds the two together."""

    def load(self) -> Any:  # noqa: ANN401 - typer keeps the type of a command to itself
        """Import it, and return it as typer builds it."""
        module, _, attribute = self.place.partition(":")
        found = getattr(import_module(module), attribute)
        around = typer.Typer(add_completion=False)
        around.callback()(_nothing)
        if isinstance(found, typer.Typer):
            around.add_typer(found, name=self.name)
        else:
            around.command(self.name)(found)
        built = get_command(around)
        assert isinstance(built, TyperGroup)
        return built.commands[self.name]


def build_app(
    commands: Sequence[Later],
    begin: Callable[..., None],
    **settings: Any,  # noqa: ANN401 - typer's
) -> typer.Typer:
    """Return an app that knows names and summaries, and imports the one command that is meant.

    `begin` has the options that stand before a command.
    """
    places = {command.name: command for command in commands}

    class Group(TyperGroup):
        """Swaps a name for its command."""

        def resolve_command(
            self,
            ctx: Any,  # noqa: ANN401 - typer keeps this type to itself
            args: list[str],
        ) -> tuple[str | None, Any, list[str]]:
            name, found, rest = super().resolve_command(ctx, args)
            return name, found if name is None else places[name].load(), rest

    app = typer.Typer(cls=Group, **settings)
    app.callback()(begin)
    for command in commands:
        app.command(command.name, help=command.summary)(_nothing)
    return app


def _nothing() -> None:
    """Stand where typer wants a function."""
