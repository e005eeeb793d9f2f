"""Which watchers a topic is for that is there only now, and which topics a set of patterns means.

Owns the table of those who wait for a name. Keeps: a new topic costs by the patterns that have
different lengths, not by the watchers there are.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Protocol

from topics.engine.engine import Engine
from topics.engine.topics.topic import Topic
from topics.model.watch import WILDCARD


class Waiting(Protocol):
    """Whoever waits for topics."""

    def meet(self, topic: Topic) -> None: ...


class Newcomers:
    """Who waits for which names: a whole one, or the beginning of one and a `*`."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[Waiting, None]] = {}
        self._lengths: Counter[int] = Counter()
        """Of the beginnings that are waited for."""

    def wait(self, name: str, waiting: Waiting) -> None:
        """Hear of every topic of this name, or whose parent has it, or that begins so."""
        if name not in self._waiting:
            self._waiting[name] = {}
            if name.endswith(WILDCARD):
                self._lengths[len(name) - 1] += 1
        self._waiting[name][waiting] = None

    def leave(self, name: str, waiting: Waiting) -> None:
        found = self._waiting.get(name)
        if found is None or waiting not in found:
            return
        del found[waiting]
        if found:
            return
        del self._waiting[name]
        if name.endswith(WILDCARD):
            self._lengths[len(name) - 1] -= 1
            if not self._lengths[len(name) - 1]:
                del self._lengths[len(name) - 1]

    def of(self, topic: Topic) -> list[Waiting]:
        """Return whom a topic concerns, each once."""
        name = topic.name
        keys = [name] if topic.parent is None else [name, topic.parent.name]
        keys += [name[:size] + WILDCARD for size in self._lengths if size <= len(name)]
        found: dict[Waiting, None] = {}
        for key in keys:
            found.update(self._waiting.get(key, ()))
        return list(found)


def topics_of(engine: Engine, prefixes: Iterable[str], limit: int) -> Iterator[Topic]:
    """Find the topics that begin with any of the prefixes, by name, each once, up to a limit."""
    for prefix in _widest(prefixes):
        for topic in engine.topics_starting(prefix, limit):
            yield topic
            limit -= 1
        if limit <= 0:
            return


def _widest(prefixes: Iterable[str]) -> list[str]:
    """Leave out those that begin with another one."""
    widest: list[str] = []
    for prefix in sorted(prefixes):
        if not (widest and prefix.startswith(widest[-1])):
            widest.append(prefix)
    return widest
