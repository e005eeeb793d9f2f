"""Dead letters back into their queues: how many calls it takes, and what would go where."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from topics.errors import RequestError
from topics.model.diff import Record
from topics.model.topics import TopicState

if TYPE_CHECKING:
    from topics.client import Topics

FROM = "$dead_letter_from"
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


def foresee(client: "Topics", dead: str, *, to: str | None, count: int | None) -> dict[str, int]:
    """Return how many jobs would go to which queue; move none."""
    state = client.state(dead)
    if state.queue is not None:
        raise RequestError(f"{dead!r} is a queue itself: claim its jobs instead")
    letters = islice(_letters(client, state), count)
    return dict(Counter(to or _origin(letter) for letter in letters))


def _letters(client: "Topics", state: TopicState) -> Iterator[Record]:
    for item in client.topic(state.topic).read(from_seq=0):
        if isinstance(item, Record):
            if item.seq > state.head_seq:
                return
            yield item


def _origin(letter: Record) -> str:
    origin = (letter.meta or {}).get(FROM)
    if not isinstance(origin, str):
        raise RequestError(
            f"record {letter.seq} does not say which queue it comes from: name one by --to"
        )
    return origin
