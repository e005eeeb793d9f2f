"""Dead letters back into their queues: how many calls it takes, and what would go where.

What would stop a redrive is judged as the server does it: by `topics.engine.queues.redrive`.
"""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from topics.errors import (
    Forbidden,
    NotAQueue,
    RequestError,
    TopicExistsIncompatible,
    TopicNotFound,
    TopicPartitioned,
)
from topics.model.dead_letters import FROM
from topics.model.diff import Record
from topics.model.topics import TopicState

if TYPE_CHECKING:
    from topics.client import Topics

AT_ONCE = 1_000


def redrive(
    client: "Topics", dead: str, *, to: str | None, count: int | None
) -> Iterator[dict[str, int]]:
    """Yield how many jobs went to which queue, call by call.

    Ends with what was there at the start: a job that dies again meanwhile is left. After a letter
    that its queue does not take, the next call raises why.
    """
    held = client.state(dead).count
    wanted = max(1, held if count is None else min(count, held))  # the server judges an empty one
    while wanted > 0:
        step = client.redrive(dead, to=to, max=min(wanted, AT_ONCE))
        yield step.queues
        if not step.moved:
            return
        wanted -= step.moved


def foresee(client: "Topics", dead: str, *, to: str | None, count: int | None) -> Iterator[str]:
    """Yield the queue of each job that would go back; move none.

    Raises at the letter that would stop a redrive. That a queue would be full is not foreseen.
    """
    state = client.state(dead)
    if state.config.type == "queue":
        raise TopicExistsIncompatible(f"{dead!r} is a queue itself: claim its jobs instead")
    names = _names_of(client, state)
    queues: dict[str, TopicState] = {}
    for part, letter in islice(_letters(client, state), count):
        name = to or _origin(letter)
        if name not in queues:
            queues[name] = _queue(client, name)
        if to is None and queues[name].config.dead_letter not in {part, *names}:
            raise TopicExistsIncompatible(
                f"record {letter.seq} of {part!r} says that it comes from {name!r}, but that queue "
                f"does not have {names[-1]!r} as its dead_letter: name a queue by --to"
            )
        yield name


def _names_of(client: "Topics", state: TopicState) -> list[str]:
    """Return the names under which a queue may know the topic: a partition has that of all."""
    parent = state.topic.rpartition("-")[0]
    try:
        found = client.state(parent).partitions if parent else None
    except (TopicNotFound, Forbidden):
        found = None
    is_part = any(part.topic == state.topic for part in found or ())
    return [state.topic, parent] if is_part else [state.topic]


def _letters(client: "Topics", state: TopicState) -> Iterator[tuple[str, Record]]:
    """Yield what is there now, with its topic; partition by partition, as a redrive takes it."""
    if state.partitions is not None:
        for part in state.partitions:
            yield from _letters(client, client.state(part.topic))
        return
    for item in client.topic(state.topic).read(from_seq=0):
        if isinstance(item, Record):
            if item.seq > state.head_seq:
                return
            yield state.topic, item


def _queue(client: "Topics", name: str) -> TopicState:
    state = client.state(name)
    if state.partitions is not None:
        raise TopicPartitioned(name, [part.topic for part in state.partitions])
    if state.queue is None:
        raise NotAQueue(name)
    return state


def _origin(letter: Record) -> str:
    origin = (letter.meta or {}).get(FROM)
    if not isinstance(origin, str):
        raise RequestError(
            f"record {letter.seq} does not say which queue it comes from: name one by --to"
        )
    return origin
