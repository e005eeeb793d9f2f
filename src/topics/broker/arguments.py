"""The arguments of each command: text in, values out. No I/O.

Keeps: a number is digits and nothing else; a name that no topic may have is refused before anybody
looks for it; of a value nothing is cut off but a trailing ` acks=…`.
"""

import re
from typing import Final, get_args

from msgspec import Struct

from topics.errors import RequestError
from topics.limits import MAX_KEY_BYTES, check_topic_name
from topics.model.diff import MAX_SEQ
from topics.model.groups import Assignor

ACKS: Final = ("0", "1", "all")
_DIGITS: Final = re.compile("[0-9]{1,20}")
_ACKS: Final = re.compile(r" acks=([^ ]*)\Z")
_ASSIGNOR: Final = "assignor="
_ASSIGNORS: Final[tuple[Assignor, ...]] = get_args(Assignor)


class Produce(Struct, frozen=True):
    """`<topic> <key>:<value>` [`acks=0|1|all`]."""

    topic: str
    key: str
    value: str


class Consume(Struct, frozen=True):
    """`<topic> <partition> <offset>`."""

    topic: str
    partition: int
    offset: int


class Join(Struct, frozen=True):
    """`<group> <topic> <consumer>` [`assignor=…`]."""

    group: str
    topic: str
    consumer: str
    assignor: Assignor


class Member(Struct, frozen=True):
    """`<group> <topic> <consumer> <generation>`."""

    group: str
    topic: str
    consumer: str
    generation: int


class Commit(Struct, frozen=True):
    """Of an operator `<group> <topic> <partition> <offset>`; of a member with its name before."""

    group: str
    topic: str
    partition: int
    offset: int
    consumer: str | None = None
    generation: int | None = None


class Progress(Struct, frozen=True):
    """`<group> <topic> <partition>`."""

    group: str
    topic: str
    partition: int


def parse_produce(args: str) -> Produce:
    topic, space, rest = args.partition(" ")
    key, colon, value = rest.partition(":")
    if not space or not colon:
        raise RequestError("PRODUCE takes <topic> <key>:<value> [acks=0|1|all]")
    check_topic_name(topic)
    if len(key.encode()) > MAX_KEY_BYTES:
        raise RequestError(f"a key may have {MAX_KEY_BYTES} bytes")
    if found := _ACKS.search(value):
        # Never kept as a part of the value: a misspelt word must not be stored without a sign.
        if found[1] not in ACKS:
            raise RequestError("acks is 0, 1 or all; a value that ends so needs its own acks=")
        value = value[: found.start()]
    return Produce(topic, key, value)


def parse_consume(args: str) -> Consume:
    topic, partition, offset = _words(args, "CONSUME", "<topic> <partition> <offset>")
    return Consume(
        check_topic_name(topic), _number("partition", partition), _number("offset", offset)
    )


def parse_join(args: str) -> Join:
    words = _split(args)
    assignor: Assignor = "sticky"
    if len(words) == 4 and words[3].startswith(_ASSIGNOR):
        assignor = parse_assignor(words.pop().removeprefix(_ASSIGNOR))
    if len(words) != 3:
        raise RequestError("JOIN takes <group> <topic> <consumer> [assignor=<name>]")
    group, topic, consumer = words
    return Join(group, check_topic_name(topic), consumer, assignor)


def parse_assignor(text: str) -> Assignor:
    for name in _ASSIGNORS:
        if text == name:
            return name
    raise RequestError(f"an assignor is one of {', '.join(_ASSIGNORS)}")


def parse_member(args: str, command: str) -> Member:
    shape = "<group> <topic> <consumer> <generation>"
    group, topic, consumer, generation = _words(args, command, shape)
    return Member(group, check_topic_name(topic), consumer, _number("generation", generation))


def parse_commit(args: str) -> Commit:
    words = _split(args)
    consumer = generation = None
    if len(words) == 6:
        consumer, generation = words[2], _number("generation", words[3])
        del words[2:4]
    if len(words) != 4:
        raise RequestError(
            "COMMIT takes <group> <topic> <partition> <offset>, or "
            "<group> <topic> <consumer> <generation> <partition> <offset>"
        )
    group, topic, partition, offset = words
    return Commit(
        group,
        check_topic_name(topic),
        _number("partition", partition),
        _number("offset", offset),
        consumer,
        generation,
    )


def parse_progress(args: str) -> Progress:
    group, topic, partition = _words(args, "OFFSET", "<group> <topic> <partition>")
    return Progress(group, check_topic_name(topic), _number("partition", partition))


def _split(args: str) -> list[str]:
    return [word for word in args.split(" ") if word]


def _words(args: str, command: str, shape: str) -> list[str]:
    words = _split(args)
    if len(words) != len(shape.split()):
        raise RequestError(f"{command} takes {shape}")
    return words


def _number(name: str, text: str) -> int:
    if _DIGITS.fullmatch(text) is None or int(text) > MAX_SEQ:
        raise RequestError(f"{name} must be a whole number from 0 to {MAX_SEQ}")
    return int(text)
