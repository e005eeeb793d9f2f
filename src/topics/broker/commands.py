"""The map of the line protocol on one screen: every command, and what each error is called."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from topics.broker import group_commands
from topics.broker.consume import consume
from topics.broker.desk import Caller, Desk, Work
from topics.broker.line import Code
from topics.broker.produce import produce
from topics.errors import GenerationMismatch, LimitReached, RequestError, Throttled, TopicsError

AUTH: Final = "AUTH"
"""Answered by the session: it is about the connection."""
COMMANDS: Final[Mapping[str, Callable[[Desk, Caller, str], Work]]] = MappingProxyType(
    {
        "PRODUCE": produce,
        "CONSUME": consume,
        "JOIN": group_commands.join,
        "SYNC": group_commands.sync,
        "HEARTBEAT": group_commands.heartbeat,
        "LEAVE": group_commands.leave,
        "COMMIT": group_commands.commit,
        "OFFSET": group_commands.offset,
    }
)


def code_of(error: TopicsError) -> Code:
    """Return the nearest of the codes that the protocol has; the message says what it was.

    A full log or a limit is the wait for room that ended. Bytes that cannot be trusted, a disk that
    fails and a server that stops are a place that cannot serve this partition now.
    """
    match error:
        case GenerationMismatch():
            return "GENERATION_MISMATCH"
        case RequestError():
            return "BAD_REQUEST"
        case Throttled() | LimitReached():
            return "REPLICATION_TIMEOUT"
        case _:
            return "NOT_LEADER"
