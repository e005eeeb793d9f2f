"""Dead letters back into their queues: written first, then removed, so that none is lost.

A redrive that was cut may be run again: what it has written already is known by its key, for the
queue's `idempotency_window_ms`.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

from topics.errors import RequestError
from topics.model.diff import Record
from topics.model.topics import TopicState

if TYPE_CHECKING:
    from topics.client import Topics

FROM = "$dead_letter_from"
PREFIX = "$dead_letter_"
AT_ONCE = 100


def redrive(
    client: "Topics", dead: str, *, to: str | None, count: int | None, dry_run: bool
) -> dict[str, int]:
    """Return how many jobs went to which queue."""
    state = client.state(dead)
    if state.queue is not None:
        raise RequestError(f"{dead} is a queue: work on it, its jobs may be in somebody's hands")
    moved: Counter[str] = Counter()
    letters = islice(_letters(client, state), count)
    for target, group in groupby(letters, key=lambda letter: to or _origin(dead, letter)):
        while batch := list(islice(group, AT_ONCE)):
            moved[target] += len(batch)
            if not dry_run:
                _move(client, state, target, batch)
    return dict(moved)


def _letters(client: "Topics", state: TopicState) -> Iterator[Record]:
    """Yield what was there at the start; what dies again meanwhile is left."""
    for item in client.topic(state.topic).read(from_seq=0):
        if isinstance(item, Record):
            if item.seq > state.head_seq:
                return
            yield item


def _move(client: "Topics", state: TopicState, target: str, letters: list[Record]) -> None:
    first, last = letters[0].seq, letters[-1].seq
    key = f"redrive:{state.epoch}:{first}-{last}:{state.topic}"[:256]
    client.append(target, map(_job, letters), idempotency_key=key, create=False)
    client.delete(state.topic, before_seq=last + 1)


def _origin(dead: str, letter: Record) -> str:
    origin = (letter.meta or {}).get(FROM)
    if not isinstance(origin, str):
        raise RequestError(f"record {letter.seq} of {dead} is no dead letter: name a queue by --to")
    return origin


def _job(letter: Record) -> dict[str, Any]:
    """Return the job as it was before it died."""
    meta = {k: v for k, v in (letter.meta or {}).items() if not k.startswith(PREFIX)}
    more = {"tag": letter.tag, "node": letter.node, "meta": meta or None}
    given = {name: value for name, value in more.items() if value is not None}
    return {"data": letter.data_json, **given}
