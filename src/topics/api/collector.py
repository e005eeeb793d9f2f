"""What the garbage collector need not look at: with very many topics one look of it takes seconds.

A topic is made of a dozen objects that stay as long as it does. In a full collection the
interpreter goes through all there are, and nobody else runs meanwhile.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

TOPICS_MIN = 1_000
"""So many topics more are worth it: what is in a cycle by chance just then is never freed."""


class Collector:
    """Tells the collector to leave alone what is there, once and after each so many new topics."""

    def __init__(self) -> None:
        self._topics = 0

    @contextmanager
    def kept_away(self) -> Iterator[None]:
        """Let it not begin while much is made that stays: tell it so before it comes back."""
        was_on = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if was_on:
                gc.enable()

    def leave_alone(self, topics: int) -> None:
        """Call it now and then, with how many topics there are."""
        if topics >= self._topics + TOPICS_MIN:
            self._topics = topics
            gc.freeze()
