"""`topics put`: append from arguments or from a pipe."""

import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from topics.cli.connect import AsJson, ContextName, Url, connect
from topics.cli.output import print_one, say
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
        for where, raw in given_values(data or []):
            value, fields = parse_value(raw, where=where, text=text, whole=whole)
            sent[1:] = [producer.send(value, **{"tag": tag, "key": key, "node": node, **fields})]
            count += 1
        producer.flush()
    told: dict[str, object] = {"topic": topic, "count": count}
    if sent:
        told |= {"first": sent[0].result(), "last": sent[-1].result()}
    print_one(told, as_json=as_json)


def parse_value(raw: bytes, *, where: str, text: bool, whole: bool) -> Value:
    """Return what one argument or line says."""
    try:
        if text:
            return raw.decode(), {}
        raw.decode()
        if not whole:
            msgspec.json.decode(raw)
            return msgspec.Raw(raw.strip()), {}
        record = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        fields: dict[str, Any] = {
            name: msgspec.json.decode(record[shown], type=str | None)
            for name, shown in SHOWN_AS
            if shown in record
        }
    except UnicodeDecodeError:
        raise RequestError(f"{where} is not UTF-8") from None
    except msgspec.ValidationError as error:
        raise RequestError(f"{where} is no record: {error}") from None
    except msgspec.DecodeError as error:
        raise RequestError(f"{where} is not JSON (is it --text?): {error}") from None
    if "data" not in record:
        raise RequestError(f"{where} has no data")
    if "meta" in record:
        fields["meta"] = record["meta"]
    return record["data"], fields


def given_values(arguments: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yield where each value stands, for messages, and its bytes: of arguments, else of stdin."""
    for number, argument in enumerate(arguments, start=1):
        yield f"argument {number}", os.fsencode(argument)
    if arguments:
        return
    if sys.stdin.isatty():
        say("-- waiting for records, one a line; Ctrl-D ends them")
    for number, line in enumerate(sys.stdin.buffer, start=1):
        stripped = line.rstrip(b"\r\n")
        if stripped:
            yield f"line {number} of stdin", stripped
