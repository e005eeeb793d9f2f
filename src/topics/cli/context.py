"""`topics context`: servers by name."""

from typing import Annotated

import msgspec
import typer

from topics.cli.connect import AsJson, DryRun
from topics.cli.contexts import (
    Context,
    Contexts,
    complete_contexts,
    load_contexts,
    save_contexts,
)
from topics.cli.output import print_one, print_rows
from topics.errors import ConfigError

context_app = typer.Typer(help="Name servers, and pick one.", no_args_is_help=True)

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="of the server", autocompletion=complete_contexts),
]
COLUMNS = ("context", "url", "token", "current")


@context_app.command("ls")
def list_contexts(*, as_json: AsJson = False) -> None:
    """List the servers that have a name."""
    contexts = load_contexts()
    print_rows(
        (_shown(contexts, name) for name in sorted(contexts.contexts)), COLUMNS, as_json=as_json
    )


@context_app.command("show")
def show_context(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="default: the current", autocompletion=complete_contexts
        ),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show one; the current one if none is named."""
    contexts = load_contexts()
    wanted = name or contexts.current
    if wanted is None:
        raise ConfigError("no context is current: see topics context use")
    contexts.get(wanted)
    print_one(_shown(contexts, wanted), as_json=as_json)


@context_app.command("add")
def add_context(
    name: Name,
    url: Annotated[str, typer.Option("--url", metavar="URL", help="of the server")],
    *,
    token_env: Annotated[
        str | None, typer.Option("--token-env", metavar="VARIABLE", help="which has the token")
    ] = None,
    token_file: Annotated[
        str | None, typer.Option("--token-file", metavar="FILE", help="which has the token")
    ] = None,
) -> None:
    """Name a server, or change one; the first one becomes current. No token is stored."""
    if token_env is not None and token_file is not None:
        raise ConfigError("give --token-env or --token-file, not both")
    contexts = load_contexts()
    added = Context(url=url, token_env=token_env, token_file=token_file)
    save_contexts(
        Contexts(current=contexts.current or name, contexts={**contexts.contexts, name: added})
    )


@context_app.command("use")
def use_context(name: Name) -> None:
    """Make one current."""
    contexts = load_contexts()
    contexts.get(name)
    save_contexts(msgspec.structs.replace(contexts, current=name))


@context_app.command("rm")
def remove_context(name: Name, *, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Forget a server."""
    contexts = load_contexts()
    contexts.get(name)
    left = {other: context for other, context in contexts.contexts.items() if other != name}
    current = None if contexts.current == name else contexts.current
    if not dry_run:
        save_contexts(Contexts(current=current, contexts=left))
    print_one({"context": name, "removed": not dry_run}, as_json=as_json)


def _shown(contexts: Contexts, name: str) -> dict[str, object]:
    context = contexts.get(name)
    token = context.token_env and f"${context.token_env}"
    return {
        "context": name,
        "url": context.url,
        "token": token or context.token_file,
        "current": contexts.current == name,
    }
