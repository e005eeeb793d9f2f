"""What a shell may complete: names of a server that answers soon, else nothing, silently."""

import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Final

import typer

from topics.cli.connect import connect
from topics.errors import TopicsError

if TYPE_CHECKING:
    from topics.client import Topics

PATIENCE_S: Final = 0.3
"""A person waits for the next key."""
SHOWN_MAX: Final = 200


def complete_topics(context: typer.Context, incomplete: str) -> list[str]:
    return _ask(context, lambda client: client.topics(incomplete), incomplete)


def complete_groups(context: typer.Context, incomplete: str) -> list[str]:
    return _ask(context, lambda client: client.groups(), incomplete)


def complete_routers(context: typer.Context, incomplete: str) -> list[str]:
    return _ask(context, lambda client: [r.router for r in client.routers()], incomplete)


def _ask(
    context: typer.Context, names: "Callable[[Topics], list[str]]", incomplete: str
) -> list[str]:
    """Return the names that begin so; on a thread that is left alone when it takes too long."""
    url, named = context.params.get("url"), context.params.get("context")
    found: list[str] = []

    def ask() -> None:
        try:
            with connect(url, named, patience_s=PATIENCE_S) as client:
                found.extend(name for name in names(client) if name.startswith(incomplete))
        except TopicsError:
            pass  # there is nobody to tell: a shell wants names or nothing

    with suppress(ModuleNotFoundError):  # the patience is for the server, not for our imports
        import_module("topics.client")
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PATIENCE_S)
    return found[:SHOWN_MAX]
