"""Where a reader stands: pages in, items out. No I/O, so that both faces share it."""

from collections.abc import Iterator
from typing import Generic, TypeVar

from msgspec.structs import replace

from topics.handles.payload import Payload
from topics.model.diff import Page
from topics.model.stream import CaughtUp, Item, PageRequest

T = TypeVar("T")

WAIT_MS = 10_000
"""How long one read waits for something new."""


class Cursor(Generic[T]):
    """Asks for a page only when all of the page before it was taken."""

    def __init__(self, payload: Payload[T], first: PageRequest, *, until_caught_up: bool) -> None:
        self.request = first
        self.done = False
        self._payload = payload
        self._until_caught_up = until_caught_up
        self._is_live = False

    def take(self, page: Page) -> Iterator[Item[T]]:
        """Yield what a page says, and move on behind it."""
        if page.tombstone is not None:
            yield page.tombstone
        for record in page.records:
            yield self._payload.typed(page.topic, record)
        self.request = replace(
            self.request,
            from_seq=page.next_from_seq,
            wait_ms=WAIT_MS if page.caught_up else 0,
        )
        self.done = bool(page.until_reached) or (self._until_caught_up and page.caught_up)
        if page.caught_up and not self._is_live:
            yield CaughtUp(topic=page.topic, from_seq=page.next_from_seq, head_seq=page.head_seq)
        self._is_live = page.caught_up
