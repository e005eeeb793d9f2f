"""`topics backup`: a copy of everything, made by the server while it works."""

from typing import Annotated

import typer

from topics.cli.connect import AsJson, ContextName, Url, connect
from topics.cli.output import fields_of, for_people, print_one, say

HOUR_S = 3600.0


def run_backup(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="of the copy, in the server's backup_dir")
    ],
    *,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=1, metavar="SECONDS", help="how long to wait for it")
    ] = HOUR_S,
    as_json: AsJson = False,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """Have a server copy everything, as it is at one moment, while it goes on.

    It ends when the copy is whole and synced. Ctrl-C ends the waiting alone: the
    server goes on with it.
    """
    with connect(url, context) as client:
        if for_people(as_json=as_json):
            say(f"-- {client.url} makes the backup {name}: a large one takes minutes")
        made = client.backup(name, timeout_s=timeout_s)
    print_one({"backup": name, **fields_of(made)}, as_json=as_json)
