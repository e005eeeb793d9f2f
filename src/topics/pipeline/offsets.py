"""Places in topics: where a query starts, where it ends, and what a checkpoint remembers.

A place is a cursor as in a diff: records behind it come next, 0 is before the first. The epoch
tells one life of a topic from the next, so that a topic made anew is not read on as if nothing
had happened. On the wire: `{"orders": {"epoch": 7, "next_from_seq": 42}}`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from topics.errors import OptionError
from topics.pipeline.options import SourceOptions, Where


class Part(Struct, frozen=True, order=True):
    """One ordinary topic: a whole one, or a partition of `topic`."""

    name: str
    topic: str
    partition: int = 0


class PartState(Struct, frozen=True, kw_only=True):
    """How far a part reaches."""

    part: Part
    epoch: int
    head_seq: int
    earliest_seq: int
    record_bytes: int = 0
    """What a record takes on average; 0 where that is not known."""


class Place(Struct, frozen=True):
    """A cursor in one life of a topic."""

    epoch: int
    next_from_seq: int


Offsets: TypeAlias = dict[str, Place]


class PartRange(Struct, frozen=True, kw_only=True):
    """What a query reads of one part: (start, end]."""

    part: Part
    epoch: int
    start: int
    end: int


def parse_offsets(given: Mapping[str, Any]) -> Offsets:
    """Read what a checkpoint kept."""
    return {
        name: Place(int(place["epoch"]), int(place["next_from_seq"]))
        for name, place in given.items()
    }


def format_offsets(offsets: Offsets) -> dict[str, dict[str, int]]:
    return {
        name: {"epoch": place.epoch, "next_from_seq": place.next_from_seq}
        for name, place in sorted(offsets.items())
    }


def resolve(where: Where, state: PartState) -> int:
    if where == "earliest":
        return min(state.earliest_seq - 1, state.head_seq)
    return state.head_seq if where == "latest" else where


def place_of(where: Mapping[str, Where] | Where | None, state: PartState, *, default: Where) -> int:
    """Return the cursor that an option means for a part, named by itself or by its topic."""
    if isinstance(where, Mapping):
        where = where.get(state.part.name, where.get(state.part.topic, default))
    return resolve(default if where is None else where, state)


def check_named(options: SourceOptions, parts: Sequence[Part]) -> None:
    """Refuse offsets of topics that are not read: they would be ignored in silence."""
    known = {name for part in parts for name in (part.name, part.topic)}
    for option, where in (
        ("startingOffsets", options.starting),
        ("endingOffsets", options.ending),
    ):
        if isinstance(where, Mapping) and (unknown := sorted(set(where) - known)):
            raise OptionError(f"`{option}` names {unknown}, which `topic` does not read")


def admit(
    start: Offsets, states: Sequence[PartState], *, max_records: int | None
) -> dict[str, int]:
    """Say how far each part may go."""
    waiting = {state.part.name: max(0, state.head_seq - _from(start, state)) for state in states}
    shares = waiting if max_records is None else share(waiting, max_records)
    return {state.part.name: _from(start, state) + shares[state.part.name] for state in states}


def share(waiting: Mapping[str, int], limit: int) -> dict[str, int]:
    """Divide a limit by how much waits: one for each that waits, so that none waits for ever."""
    if sum(waiting.values()) <= limit:
        return dict(waiting)
    order = sorted((name for name in waiting if waiting[name]), key=lambda n: (-waiting[n], n))
    shares = dict.fromkeys(waiting, 0) | dict.fromkeys(order[:limit], 1)
    left = limit - sum(shares.values())
    wants = {name: waiting[name] - shares[name] for name in order}
    total = sum(wants.values())
    for name in order:
        shares[name] += wants[name] * left // total
    for name in order:  # what rounding left over
        if sum(shares.values()) < limit and shares[name] < waiting[name]:
            shares[name] += 1
    return shares


def _from(start: Offsets, state: PartState) -> int:
    """Where a part goes on: a new one, or one made anew, from its first record."""
    place = start.get(state.part.name)
    return place.next_from_seq if place is not None and place.epoch == state.epoch else 0
