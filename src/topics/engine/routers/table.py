"""Which routers there are: made, changed and removed here, each step durable before it is told.

Owns the map from names to routers, the links of topics, and the lock under which links move. That
lock is taken before every other one. Before a router changes or goes, the copies it made are put
into synced segments: a restart rebuilds copies by the routers it finds, and only those.
"""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from topics.clock import Clock
from topics.config import ServerConfig
from topics.engine.routers.cycles import find_path, mark_cycles
from topics.engine.routers.forwarder import Forwarder
from topics.engine.routers.link import Link, Router
from topics.engine.topics.registry import Registry
from topics.engine.topics.topic import Topic
from topics.errors import (
    LimitReached,
    RetryLater,
    RouterCycle,
    RouterNotFound,
    StorageError,
    TopicExistsIncompatible,
    TopicNotFound,
)
from topics.limits import check_router_name
from topics.model.routers import RouterDefinition, RouterState
from topics.storage.wal import frame
from topics.storage.wal.group_commit import Ticket


class _Place(NamedTuple):
    """Where a router is."""

    link: Link
    router: Router


class Routers:
    """The routers of one engine."""

    def __init__(
        self,
        links: Iterable[Link],
        *,
        registry: Registry,
        forwarder: Forwarder,
        checkpoint: Callable[[], None],
        config: ServerConfig,
        clock: Clock,
    ) -> None:
        self._lock = threading.RLock()
        self._turn = threading.Lock()
        self._registry = registry
        self._forwarder = forwarder
        self._checkpoint = checkpoint
        self._config = config
        self._clock = clock
        self._by_name: dict[str, _Place] = {}
        self._next_number = 1
        for link in links:
            self._attach(link)
            for router in link.routers:
                self._by_name[router.name] = _Place(link, router)
                self._next_number = max(self._next_number, router.number + 1)
        mark_cycles(self._links())

    def __len__(self) -> int:
        return len(self._by_name)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep every link where it is; whoever wants to forward waits its turn behind this."""
        with self._turn:
            self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    # Looking.

    def state(self, name: str) -> RouterState:
        check_router_name(name)
        place = self._by_name.get(name)
        if place is None:
            raise RouterNotFound(name)
        return _state(place)

    def find(self, name: str) -> RouterState | None:
        place = self._by_name.get(name)
        return None if place is None else _state(place)

    def some(
        self,
        is_wanted: Callable[[str, RouterDefinition], bool],
        *,
        after: str = "",
        limit: int = sys.maxsize,
    ) -> list[RouterState]:
        """Return the first routers by name that are wanted and come after one."""
        places = dict(self._by_name)
        found: list[RouterState] = []
        for name in sorted(places):
            if name > after and is_wanted(name, places[name].router.definition):
                found.append(_state(places[name]))
                if len(found) == limit:
                    break
        return found

    def all(self) -> list[RouterState]:
        """Return the routers by name."""
        return self.some(lambda _name, _definition: True)

    # Changing.

    def put(self, name: str, fields: Mapping[str, Any]) -> tuple[RouterDefinition, bool]:
        """Make or change a router; tell whether it was made."""
        check_router_name(name)
        definition = RouterDefinition.from_fields(fields)
        with self.held():
            before = self._by_name.get(name)
            if before is not None and before.router.definition == definition:
                return definition, False
            self._check(name, definition)
            dest = self._dest(definition)
            source = self._made(definition.source)
            self._settle(link for link in {before and before.link, dest.link} if link)
            self._begin(name, definition, source, dest)
            if before is not None and before.link is not self._by_name[name].link:
                self._end(before.link, name)
            self._settle_cycles()
            return definition, before is None

    def delete(self, name: str) -> bool:
        check_router_name(name)
        with self.held():
            place = self._by_name.get(name)
            if place is None:
                return False
            self._settle([place.link])
            self._end(place.link, name)
            del self._by_name[name]
            self._settle_cycles()
            return True

    def routers_at(self, topic: Topic) -> list[Router]:
        """Return those that copy from a topic or to it."""
        return [router for link in _links_at(topic) for router in link.routers]

    def settle_topic(self, topic: Topic) -> None:
        """Before a topic goes: what its routers still have to copy is copied, and safe."""
        if topic.links:
            self._settle(topic.links)

    def remove_topic(self, topic: Topic) -> list[str]:
        """Forget the routers of a topic that has gone; the log needs no word of it."""
        names = sorted(router.name for router in self.routers_at(topic))
        for link in _links_at(topic):
            self._detach(link)
        for name in names:
            del self._by_name[name]
        self._settle_cycles()
        return names

    # Forwarding.

    def forward_once(self) -> bool:
        with self._turn:
            pass  # a lock is not fair: without this a busy forwarder would let nobody else in
        with self._lock:
            return self._forwarder.forward_once(is_over=self._turn.locked)

    def is_due(self, topic: Topic) -> bool:
        """Tell whether something is to be forwarded into a topic; takes no lock."""
        # From the far end: what has left one topic is met in the next.
        return any(link.is_due for link in reversed(_chain(topic)))

    def forward_for(self, topic: Topic, *, is_enough: Callable[[], bool]) -> bool:
        """Forward what is due into a topic, from the far end of its chain, until that is enough.

        Tell whether anything moved.
        """
        if not self.is_due(topic):
            return False
        moved = False
        with self.held():
            for link in reversed(_chain(topic)):
                if link.is_due:
                    moved = self._forwarder.forward(link, is_over=is_enough) or moved
        return moved

    # Inside.

    def _links(self) -> list[Link]:
        return list({place.link: None for place in self._by_name.values()})

    def _check(self, name: str, definition: RouterDefinition) -> None:
        """Refuse what cannot be, before anything changes."""
        limit = self._config.max_routers
        if name not in self._by_name and limit and len(self._by_name) >= limit:
            raise LimitReached("max_routers", limit)
        others = [p for n, p in self._by_name.items() if n != name]
        for other in others:
            found = other.router.definition
            if found.dest == definition.dest and found.source != definition.source:
                raise TopicExistsIncompatible(
                    f"topic {definition.dest!r} already has routers from {found.source!r}: "
                    "a destination has one source",
                    reason="router_dest_fan_in",
                )
        if not definition.allow_cycle:
            edges = [(p.link.source.name, p.link.dest.name) for p in others]
            path = find_path(edges, start=definition.dest, goal=definition.source)
            if path:
                raise RouterCycle([definition.source, *path])

    def _dest(self, definition: RouterDefinition) -> Topic:
        dest = self._registry.find(definition.dest)
        if dest is None:
            if not definition.create_dest:
                raise TopicNotFound(definition.dest)
            dest = self._made(definition.dest)
        return dest

    def _made(self, name: str) -> Topic:
        """Return a topic, made with defaults where it is missing: a router may come first."""
        if self._registry.find(name) is None:
            self._registry.create(name, {})
        return self._registry.get(name)

    def _settle(self, links: Iterable[Link]) -> None:
        """Forward what can be forwarded, and put every copy into synced segments."""
        for link in links:
            # A destination without room keeps its cursor: the rest is for the routers to come.
            with suppress(RetryLater, StorageError):
                self._forwarder.forward(link)
        self._checkpoint()

    def _begin(self, name: str, definition: RouterDefinition, source: Topic, dest: Topic) -> None:
        link = dest.link
        if link is None or link.source is not source:
            head_seq = source.head_seq
            link = Link(source, dest, cursor=head_seq, durable_cursor=head_seq)
            source.links = (*source.links, link)  # pins the records that it will copy
        known = self._by_name.get(name)
        total = known.router.forwarded_total if known is not None else 0
        router = Router(name, definition, number=self._next_number, forwarded_total=total)

        def publish() -> None:
            link.durable_cursor = link.cursor  # the frame says so, and all copies are in segments
            if dest.link is not None and dest.link is not link:
                self._detach(dest.link)
            link.routers = link.with_router(router)
            self._by_name[name] = _Place(link, router)
            self._attach(link)

        try:
            self._write(link, router, publish)
        except (RetryLater, StorageError):
            if dest.link is not link:
                source.links = tuple(out for out in source.links if out is not link)
            raise
        self._next_number += 1
        # From here on writes into the destination are synced; one that came just before is now.
        self._registry.shard_of(dest).commit.sync_once()

    def _write(self, link: Link, router: Router, publish: Callable[[], None]) -> None:
        """Put a router on the log; it begins with its frame, so that no snapshot is between."""
        shard = self._registry.shard_of(link.dest)
        with shard.lock:
            shard.commit.admit(0)
            finished = shard.commit.flush()
            body = frame.RouterCreate(
                router.name,
                router.definition.as_dict(),
                router.number,
                link.source.id,
                link.cursor,
                link.dest.next_seq,
            )
            encoded = frame.encode_control(body, topic_id=link.dest.id, ts=self._clock.now_ms())
            ticket = Ticket([encoded], frames=1, needs_sync=True, publish=publish)
            shard.commit.submit(ticket)
        shard.commit.wake(finished)
        shard.commit.commit(ticket)

    def _end(self, link: Link, name: str) -> None:
        """Take a router out of its link."""
        shard = self._registry.shard_of(link.dest)

        def publish() -> None:
            link.routers = link.without_router(name)
            if not link.routers:
                self._detach(link)

        if link.dest.link is link:
            with shard.lock:
                shard.commit.admit(0)
                body = frame.encode_control(frame.RouterDelete(name), topic_id=link.dest.id)
                ticket = Ticket([body], frames=1, needs_sync=True, publish=publish)
                shard.commit.submit(ticket)
            shard.commit.commit(ticket)
        else:
            publish()

    def _attach(self, link: Link) -> None:
        source, dest = link.source, link.dest
        if link not in source.links:
            source.links = (*source.links, link)
        source.routed = True
        dest.link = link
        if link.is_due:
            self._forwarder.due.add(source)

    def _detach(self, link: Link) -> None:
        source, dest = link.source, link.dest
        source.links = tuple(out for out in source.links if out is not link)
        source.routed = bool(source.links)
        if dest.link is link:
            dest.link = None
        self._forwarder.forget(link)

    def _settle_cycles(self) -> None:
        mark_cycles(self._links())


def _state(place: _Place) -> RouterState:
    link, router = place
    return RouterState(
        router=router.name,
        definition=router.definition,
        forwarded_total=router.forwarded_total,
        lag=max(0, link.source.head_seq - link.cursor),
    )


def _links_at(topic: Topic) -> list[Link]:
    return [*topic.links, *([topic.link] if topic.link else [])]


def _chain(topic: Topic) -> list[Link]:
    """Return the links that lead to a topic, the nearest first."""
    chain: list[Link] = []
    link = topic.link
    while link is not None and link not in chain:
        chain.append(link)
        link = link.source.link
    return chain
