"""`topics group`: consumers that share topics, and how far they have come."""

from typing import Annotated, Literal

import typer

from topics.cli.completion import complete_groups, complete_topics
from topics.cli.connect import AsJson, ContextName, DryRun, Url, connect
from topics.cli.output import fields_of, for_people, print_one, print_rows
from topics.cli.topic import parse_assignments
from topics.errors import GroupNotFound, RequestError
from topics.model.groups import GroupState, SeekPoint

group_app = typer.Typer(help="Look at consumer groups, move and remove them.", no_args_is_help=True)

GroupName = Annotated[
    str, typer.Argument(metavar="GROUP", help="its name", autocompletion=complete_groups)
]
COLUMNS = ("group", "state", "generation", "members", "lag_total")
PARTITION_COLUMNS = ("topic", "partition", "owner", "committed", "head_seq", "lag")
Place = Literal["earliest", "latest"] | SeekPoint


def parse_place(text: str) -> Place:
    """Return a place to seek to: `earliest`, `latest`, `seq=N` or `ts=MS`."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    fields = parse_assignments([text]) if "=" in text else {}
    (name, value), *_ = [*fields.items(), ("", None)]
    if name not in ("seq", "ts") or not isinstance(value, int) or value < 0:
        raise RequestError(f"{text!r} is no place: give earliest, latest, seq=N or ts=MS")
    return SeekPoint(seq=value) if name == "seq" else SeekPoint(ts=value)


@group_app.command("ls")
def list_groups(*, as_json: AsJson = False, url: Url = None, context: ContextName = None) -> None:
    """List groups and how far behind they are."""
    with connect(url, context) as client:
        states = [client.group_state(group) for group in client.groups()]
    rows = [{**fields_of(state), "members": len(state.members)} for state in states]
    shown = [{name: row[name] for name in COLUMNS} for row in rows]
    print_rows(shown, COLUMNS, as_json=as_json)


@group_app.command("show")
def show_group(
    group: GroupName, *, as_json: AsJson = False, url: Url = None, context: ContextName = None
) -> None:
    """Show the members of a group, and each of its partitions."""
    with connect(url, context) as client:
        state: GroupState = client.group_state(group)
    fields = fields_of(state)
    if for_people(as_json=as_json):
        print_one(
            {**fields, "members": [member.member for member in state.members]}
            | {"partitions": len(state.partitions)}
        )
        print_rows(fields["partitions"], PARTITION_COLUMNS)
    else:
        print_one(fields, as_json=as_json)


@group_app.command("seek")
def seek_group(
    group: GroupName,
    to: Annotated[str, typer.Argument(metavar="PLACE", help="earliest, latest, seq=N or ts=MS")],
    *,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            help="only there; default: all of the group",
            autocompletion=complete_topics,
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """Move the progress of a group that has no members."""
    named = dict.fromkeys(topics) if topics else None
    with connect(url, context) as client:
        sought = client.seek(group, to=parse_place(to), topics=named, dry_run=dry_run)
    rows = [{**fields_of(move), "dry_run": sought.dry_run} for move in sought.moves]
    print_rows(rows, ("topic", "partition", "from", "to"), as_json=as_json)


@group_app.command("rm")
def remove_group(
    group: GroupName,
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """Remove a group that has no members, with its progress."""
    with connect(url, context) as client:
        state = client.group_state(group)
        if not dry_run and not client.drop_group(group):
            raise GroupNotFound(group)
    told = {"group": group, "removed": not dry_run, "lag_total": state.lag_total}
    print_one(told, as_json=as_json)
