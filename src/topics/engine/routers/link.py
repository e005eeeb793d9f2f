"""The routers from one source to one destination, and how far they have come.

A topic has routers from one source only, so the copies in it are a function of that source: all
routers of a pair share one cursor and forward record by record, in the order of their names.
"""

from topics.engine.diff import kernel_match
from topics.engine.topics.topic import Topic
from topics.model.routers import RouterDefinition

NOTHING_PINNED = 2**64
HOPS_MAX = 16


class Router:
    """One router of a link."""

    __slots__ = ("definition", "forwarded_total", "match", "name", "number")

    def __init__(
        self, name: str, definition: RouterDefinition, *, number: int, forwarded_total: int = 0
    ) -> None:
        self.name = name
        self.definition = definition
        self.number = number
        self.forwarded_total = forwarded_total
        self.match = kernel_match(definition.match)

    @property
    def copies_whole(self) -> bool:
        """Tell whether a copy has the very bytes of its source."""
        definition = self.definition
        return (
            definition.preserve_node
            and definition.preserve_tag
            and definition.guarantee == "at_least_once"
        )


class Link:
    """One pair of topics. `cursor` moves under the lock of the destination's shard."""

    def __init__(self, source: Topic, dest: Topic, *, cursor: int, durable_cursor: int) -> None:
        self.source = source
        self.dest = dest
        self.routers: tuple[Router, ...] = ()
        self.cursor = cursor
        """The last source seq that was looked at: what passed the filters is in the destination."""
        self.durable_cursor = durable_cursor
        """Copies up to here are in synced segments: a restart needs no older source record."""
        self.in_cycle = False
        self.backoff_ms = 0
        self.retry_at_s = 0.0

    @property
    def is_due(self) -> bool:
        return self.cursor < self.source.head_seq

    @property
    def needs_mark(self) -> bool:
        """Tell whether the cursor has moved since a mark had it, perhaps without any copy."""
        return self.cursor > self.durable_cursor

    @property
    def keeps_room(self) -> bool:
        """Tell whether the destination refuses what does not fit; then a copy may have to wait."""
        return self.dest.config.discard == "reject"

    @property
    def derives(self) -> bool:
        """Tell whether copies are made again by a restart instead of being on the log."""
        return self.dest.config.persists and not self.keeps_room and not self.in_cycle

    @property
    def pinned_from(self) -> int:
        """Return the first source seq that a restart may need, deleted or not."""
        return self.durable_cursor + 1 if self.derives else NOTHING_PINNED

    def with_router(self, router: Router) -> tuple[Router, ...]:
        others = [r for r in self.routers if r.name != router.name]
        return tuple(sorted([*others, router], key=lambda r: r.name))

    def without_router(self, name: str) -> tuple[Router, ...]:
        return tuple(r for r in self.routers if r.name != name)
