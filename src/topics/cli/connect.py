"""Which server a command speaks to: flag > named context > environment > current context."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from topics.cli.contexts import complete_contexts, load_contexts
from topics.errors import ConfigError

if TYPE_CHECKING:
    from topics.client import Topics

PANEL = "Server"
TIMEOUT_S = 30.0
RETRY_FOR_S = 5.0
"""A person waits: a server that is away this long is told."""
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", rich_help_panel=PANEL, help="default: TOPICS_URL"),
]
ContextName = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        rich_help_panel=PANEL,
        help="see topics context",
        autocompletion=complete_contexts,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON lines, as in a pipe")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="say what would be done, do nothing")]
DropDeadLetterMeta = Annotated[
    bool, typer.Option("--drop-dead-letter-meta", help="take dead letters as the jobs they were")
]


def connect(url: str | None, context: str | None, *, patience_s: float | None = None) -> "Topics":
    """Return a client; a token goes only to the server that it belongs to.

    `patience_s` bounds one try, and there is no other.
    """
    try:
        from topics.client import Topics  # noqa: PLC0415 - an extra: its lack is explained
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"the client is not installed ({missing.name}): "
            "run pip install 'topics-log[client,cli]'"
        ) from missing
    if url is not None and context is not None:
        raise ConfigError("give --url or --context, not both")
    timeout_s, retry_for_s = (TIMEOUT_S, RETRY_FOR_S) if patience_s is None else (patience_s, 0.0)
    if url is not None or (context is None and os.environ.get("TOPICS_URL")):
        return Topics(url, timeout_s=timeout_s, retry_for_s=retry_for_s)
    contexts = load_contexts()
    name = context or contexts.current
    if name is None:
        return Topics(timeout_s=timeout_s, retry_for_s=retry_for_s)
    found = contexts.get(name)
    return Topics(found.url, token=found.read_token(), timeout_s=timeout_s, retry_for_s=retry_for_s)
