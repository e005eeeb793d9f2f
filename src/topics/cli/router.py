"""`topics router`: copies from topic to topic."""

from typing import Annotated

import typer

from topics.cli.completion import complete_routers, complete_topics
from topics.cli.connect import AsJson, ContextName, DryRun, Url, connect
from topics.cli.output import print_one, print_rows
from topics.cli.topic import Assignments, parse_assignments
from topics.errors import RouterNotFound
from topics.model.routers import RouterState

router_app = typer.Typer(help="Look at routers, make and remove them.", no_args_is_help=True)

RouterName = Annotated[
    str,
    typer.Argument(
        metavar="ROUTER", help="its name, such as a->b", autocompletion=complete_routers
    ),
]
COLUMNS = ("router", "source", "dest", "filter", "forwarded_total", "lag")


def shown(state: RouterState) -> dict[str, object]:
    return {
        "router": state.router,
        **state.definition.as_dict(),
        "forwarded_total": state.forwarded_total,
        "lag": state.lag,
    }


@router_app.command("ls")
def list_routers(*, as_json: AsJson = False, url: Url = None, context: ContextName = None) -> None:
    """List routers."""
    with connect(url, context) as client:
        print_rows(map(shown, client.routers()), COLUMNS, as_json=as_json)


@router_app.command("show")
def show_router(
    router: RouterName, *, as_json: AsJson = False, url: Url = None, context: ContextName = None
) -> None:
    """Show what a router does and how far it has come."""
    with connect(url, context) as client:
        print_one(shown(client.router_state(router)), as_json=as_json)


@router_app.command("put")
def put_router(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="the topic to copy from", autocompletion=complete_topics
        ),
    ],
    dest: Annotated[
        str,
        typer.Argument(metavar="DEST", help="the topic to copy to", autocompletion=complete_topics),
    ],
    fields: Assignments = None,
    *,
    name: Annotated[str | None, typer.Option("--name", help="default: SOURCE->DEST")] = None,
    as_json: AsJson = False,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """Copy what is appended to SOURCE into DEST, from now on."""
    given = {"source": source, "dest": dest, **parse_assignments(fields)}
    with connect(url, context) as client:
        print_one(shown(client.put_router(name or f"{source}->{dest}", **given)), as_json=as_json)


@router_app.command("rm")
def remove_router(
    router: RouterName,
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """Remove a router; copies that it made stay."""
    with connect(url, context) as client:
        state = client.router_state(router)
        if not dry_run and not client.delete_router(router):
            raise RouterNotFound(router)
    print_one({"router": router, "removed": not dry_run, "lag": state.lag}, as_json=as_json)
