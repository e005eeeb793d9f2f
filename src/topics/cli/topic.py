"""`topics topic`: topics of a server."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec
import typer

from topics.cli.completion import complete_topics
from topics.cli.connect import AsJson, ContextName, DryRun, Url, connect
from topics.cli.output import fields_of, print_one, print_rows
from topics.cli.records import show_item
from topics.errors import RequestError, TopicNotFound
from topics.limits import MAX_PARTITIONS
from topics.model.diff import Record
from topics.model.stream import Item
from topics.model.topic_config import TopicConfig
from topics.model.topics import TopicState

topic_app = typer.Typer(help="Look at topics, make, change and remove them.", no_args_is_help=True)

TopicName = Annotated[
    str, typer.Argument(metavar="TOPIC", help="its name", autocompletion=complete_topics)
]
Assignments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FIELD=VALUE]...", help="config, such as ttl_ms=60000"),
]
COLUMNS = ("topic", "type", "durability", "head_seq", "count", "bytes", "partitions")


def parse_assignments(texts: list[str] | None) -> dict[str, Any]:
    """Return fields and values; a value that is no JSON is text."""
    fields = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise RequestError(f"{text!r} is not FIELD=VALUE")
        try:
            fields[name] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            fields[name] = value
    return fields


@topic_app.command("ls")
def list_topics(
    prefix: Annotated[
        str, typer.Argument(help="only names that begin so", autocompletion=complete_topics)
    ] = "",
    *,
    as_json: AsJson = False,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """List topics."""
    with connect(url, context) as client:
        print_rows(map(fields_of, client.listed(prefix)), COLUMNS, as_json=as_json)


@topic_app.command("show")
def show_topic(
    topic: TopicName, *, as_json: AsJson = False, url: Url = None, context: ContextName = None
) -> None:
    """Show the state and the config of a topic."""
    with connect(url, context) as client:
        print_one(fields_of(client.state(topic)), as_json=as_json)


@topic_app.command("create")
def create_topic(
    topic: TopicName,
    config: Assignments = None,
    *,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_PARTITIONS, help="spread its records over so many by key"),
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """Create a topic, or change the config of one that is there."""
    fields = parse_assignments(config)
    if partitions is not None:
        fields["partitions"] = partitions
    with connect(url, context) as client:
        state = client.create(topic, **fields)
        print_one(fields_of(state), as_json=as_json)


@topic_app.command("set")
def set_config(
    topic: TopicName,
    config: Assignments = None,
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """Change the config of a topic that is there."""
    changes = parse_assignments(config)
    with connect(url, context) as client:
        before = _settings(client.state(topic))
        if dry_run:
            after = _foreseen(before, changes)
        else:
            after = _settings(client.create(topic, **changes))
    changed = [
        {"field": name, "from": before.get(name), "to": after[name]}
        for name in after
        if before.get(name) != after[name]
    ]
    print_rows(changed, ("field", "from", "to"), as_json=as_json)


@topic_app.command("rm")
def remove_topic(
    topic: TopicName,
    *,
    if_empty: Annotated[bool, typer.Option("--if-empty", help="only without records")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """Remove a topic with all that it holds."""
    with connect(url, context) as client:
        state: TopicState = client.state(topic)
        if not dry_run and not client.drop(topic, if_empty=if_empty):
            raise TopicNotFound(topic)
    told = {"topic": topic, "removed": not dry_run, "count": state.count, "bytes": state.bytes}
    print_one(told, as_json=as_json)


@topic_app.command("peek")
def peek(
    topic: TopicName,
    *,
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="how many records")] = 10,
    from_seq: Annotated[
        int | None, typer.Option("--from-seq", min=0, help="those after this one instead")
    ] = None,
    match: Annotated[str | None, typer.Option("--match", help="only with this tag")] = None,
    as_json: AsJson = False,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """Show the newest records, or some from the middle; waits for nothing."""
    with connect(url, context) as client:
        start = before_newest(client.state(topic), last) if from_seq is None else from_seq
        items = client.topic(topic).read(from_seq=start, match=match, limit=min(last, 1000))
        for item in cut_newest(items, last) if isinstance(start, dict) else cut_first(items, last):
            show_item(item, as_json=as_json)


def before_newest(state: TopicState, count: int) -> int | dict[str, int]:
    """Return after which seqs the newest so many records begin."""
    if state.partitions is None:
        return max(0, state.head_seq - count)
    return {p.topic: max(0, p.head_seq - count) for p in state.partitions}


def cut_first(items: Iterable[Item[Any]], count: int) -> Iterator[Item[Any]]:
    """Yield until so many records came."""
    for item in items:
        yield item
        count -= isinstance(item, Record)
        if not count:
            return


def cut_newest(items: Iterable[Item[Any]], count: int) -> list[Item[Any]]:
    """Return what is left without the oldest records, where there are too many."""
    found = list(items)
    surplus = sum(isinstance(item, Record) for item in found) - count
    oldest = iter(range(surplus))
    return [i for i in found if not isinstance(i, Record) or next(oldest, None) is None]


def _settings(state: TopicState) -> dict[str, Any]:
    """Return the config of a topic, and how many partitions it has, if any."""
    partitions = {} if state.partitions is None else {"partitions": len(state.partitions)}
    return {**state.config.as_dict(), **partitions}


def _foreseen(before: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return the config after some changes; what the server would refuse is refused here."""
    fields = {name: value for name, value in changes.items() if name != "partitions"}
    current = {name: value for name, value in before.items() if name != "partitions"}
    merged = TopicConfig.from_changes(current).merged(fields)
    return {**before, **changes, **merged.as_dict()}
