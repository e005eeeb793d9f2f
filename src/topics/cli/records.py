"""Records on the command line: as JSON lines in a pipe, one short line each on a terminal."""

import sys
from datetime import UTC, datetime

import msgspec

from topics.cli.output import for_people, print_line, say
from topics.model.diff import Record, Tombstone
from topics.model.stream import (
    CaughtUp,
    GroupRecord,
    GroupTombstone,
    Item,
    TopicDeleted,
    WatchedRecord,
    WatchedTombstone,
    WatchItem,
)
from topics.operate.text import printable

_FROM_MANY = (GroupRecord, GroupTombstone, WatchedRecord, WatchedTombstone)


def show_item(item: Item[object] | WatchItem, *, as_json: bool) -> None:
    """Print what a reader got; loss is a line of its own in a pipe, too."""
    people = for_people(as_json=as_json)
    match item:
        case Record():
            if people:
                sys.stdout.write(line_of(item) + "\n")
                sys.stdout.flush()
            else:
                print_line(wire_record(item))
        case Tombstone() if people:
            where = f"{item.topic}: " if isinstance(item, _FROM_MANY) else ""
            say(f"-- {where}lost: {item.gap_from} to {item.gap_to} ({item.reason})")
        case Tombstone():
            print_line({"tombstone": item})
        case CaughtUp():
            if people:
                say(f"-- {item.topic} caught up at {item.head_seq}")
        case TopicDeleted():
            say(f"-- {item.topic} is gone, at {item.head_seq}")


def wire_record(record: Record) -> dict[str, object]:
    """Return a record with the names of the wire; what it has not is left out."""
    fields: dict[str, object] = {"topic": record.topic} if isinstance(record, _FROM_MANY) else {}
    fields |= {"$seq": record.seq, "$ts": record.ts}
    if record.node is not None:
        fields["$node"] = record.node
    if record.tag is not None:
        fields["$tag"] = record.tag
    if bytes(record.meta_json) != b"null":
        fields["meta"] = record.meta_json
    return {**fields, "data": record.data_json}


def line_of(record: Record) -> str:
    """Return a record as a person reads it; nothing in it steers the terminal."""
    when = datetime.fromtimestamp(record.ts / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    tag = f" [{record.tag}]" if record.tag is not None else ""
    data = record.data
    text = data if isinstance(data, str) else msgspec.json.encode(data).decode()
    topic = f"{record.topic}  " if isinstance(record, _FROM_MANY) else ""
    return printable(f"{topic}{record.seq:>8}  {when}{tag}  {text}")
