"""`topics put`: append from arguments or from a pipe."""

import sys
from collections.abc import Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from topics.cli.connect import AsJson, ContextName, Url, connect
from topics.cli.output import print_one
from topics.cli.topic import TopicName
from topics.errors import RequestError

if TYPE_CHECKING:
    from topics.handles.outbox import Sent

Value = tuple[Any, dict[str, Any]]
"""Data, and what else a record has."""
SHOWN_AS = (("tag", "$tag"), ("node", "$node"), ("tag", "tag"), ("node", "node"), ("key", "key"))


def run_put(  # noqa: PLR0913 - one argument a flag
    topic: TopicName,
    data: Annotated[
        list[str] | None, typer.Argument(metavar="[DATA]...", help="JSON; none: lines of stdin")
    ] = None,
    *,
    text: Annotated[bool, typer.Option("--text", help="the data is text, not JSON")] = False,
    whole: Annotated[
        bool, typer.Option("--records", help="each is a whole record, as `topics tail` prints it")
    ] = False,
    tag: Annotated[str | None, typer.Option("--tag", help="of every record")] = None,
    key: Annotated[str | None, typer.Option("--key", help="says which partition")] = None,
    node: Annotated[str | None, typer.Option("--node", help="who writes")] = None,
    as_json: AsJson = False,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """Append records: one for each DATA, or for each line of stdin.

    Lines go out in batches, in order, each once. On a bad line all before it
    are written, and none after it.
    """
    if text and whole:
        raise RequestError("--text and --records do not go together")
    sent: list[Future[Sent]] = []
    count = 0
    with connect(url, context) as client, client.producer(topic, linger_ms=20) as producer:
        for count, raw in enumerate(data or _lines(), start=1):
            value, fields = parse_value(raw, number=count, text=text, whole=whole)
            sent[1:] = [producer.send(value, **{"tag": tag, "key": key, "node": node, **fields})]
        producer.flush()
    told: dict[str, object] = {"topic": topic, "count": count}
    if sent:
        told |= {"first": sent[0].result(), "last": sent[-1].result()}
    print_one(told, as_json=as_json)


def parse_value(raw: str, *, number: int, text: bool, whole: bool) -> Value:
    """Return what one argument or line says."""
    if text:
        return raw, {}
    try:
        if not whole:
            return msgspec.Raw(_checked(raw)), {}
        record = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise RequestError(f"record {number} is not JSON (is it --text?): {error}") from None
    if "data" not in record:
        raise RequestError(f"record {number} has no data")
    fields = {
        name: msgspec.json.decode(record[shown]) for name, shown in SHOWN_AS if shown in record
    }
    if "meta" in record:
        fields["meta"] = record["meta"]
    return record["data"], fields


def _checked(raw: str) -> bytes:
    encoded = raw.encode()
    msgspec.json.decode(encoded)
    return encoded.strip()


def _lines() -> Iterator[str]:
    for line in sys.stdin:
        stripped = line.rstrip("\r\n")
        if stripped:
            yield stripped
