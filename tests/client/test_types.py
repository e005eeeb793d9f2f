"""What mypy must believe of a reader: `make check` is half of this test."""

from collections.abc import Iterable
from typing import assert_never, assert_type

import msgspec
from tests.client.faces import fresh

from topics.client import Topics
from topics.handles import TopicHandle
from topics.model.diff import Record, Tombstone
from topics.model.stream import CaughtUp, Item, TypedRecord


class Order(msgspec.Struct):
    """A payload."""

    id: int


def told(items: Iterable[Item[Order]]) -> list[str]:
    """Look at every kind of item; a kind that is forgotten is an error of types."""
    lines = []
    for item in items:
        match item:
            case Record():
                assert_type(item, TypedRecord[Order])
                assert_type(item.data, Order)
                lines.append(f"order {item.data.id}")
            case Tombstone():
                lines.append(f"lost {item.gap_from} to {item.gap_to}")
            case CaughtUp():
                lines.append(f"caught up at {item.head_seq}")
            case _:
                assert_never(item)
    return lines


def test_a_match_over_the_items_of_a_reader_is_whole(client: Topics) -> None:
    name = fresh()
    client.create(name, cap_records=1)
    orders = client.topic(name, model=Order)
    assert_type(orders, TopicHandle[Order])
    orders.append(Order(id=1), Order(id=2))
    assert told(orders.read()) == ["lost 1 to 1", "order 2", "caught up at 2"]
