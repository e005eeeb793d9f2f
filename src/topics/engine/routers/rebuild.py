"""A start, for the destinations of routers: their copies are made again from the source.

    cursor of the last mark → fill the gap before each write or hole that the log has
    → all that is left behind the last one

Keeps: a copy gets the seq it had. What the source itself lost leaves a gap, and that gap is told to
the log, so that no later start fills it with something else.
"""

from collections.abc import Iterator
from typing import NamedTuple

from topics.engine.delete import apply_delete
from topics.engine.routers.cycles import mark_cycles
from topics.engine.routers.gather import STEP_RECORDS, copy_run
from topics.engine.routers.link import Link, Router
from topics.engine.topics.chunk import Chunk
from topics.engine.topics.floors import Hole
from topics.engine.topics.topic import Topic
from topics.kernel import FLAG_DURABLE
from topics.model.routers import RouterDefinition
from topics.storage.snapshots.snapshot import LinkSnapshot, RouterSnapshot
from topics.storage.wal import frame

_END = 2**64


class Anchor(NamedTuple):
    """From `dest_seq` on copies are of source records behind `cursor`."""

    dest_seq: int
    source_id: int
    cursor: int


class FoundLink:
    """What snapshot and log say of the routers into one topic."""

    def __init__(self) -> None:
        self.source_id = 0
        self.base = Anchor(0, 0, 0)
        """The newest mark."""
        self.anchors: list[Anchor] = []
        self.routers: dict[str, Router] = {}
        self.deletes: list[frame.Delete] = []

    def load(self, saved: LinkSnapshot) -> None:
        self.source_id = saved.source_id
        self.base = Anchor(0, saved.source_id, saved.cursor)
        for router in saved.routers:
            self._add(router.name, router.definition, router.number, router.forwarded_total)

    def mark(self, source_id: int, cursor: int) -> None:
        self.base = Anchor(0, source_id, cursor)

    def apply(self, body: frame.RouterCreate) -> None:
        if body.source_id != self.source_id:
            self.source_id = body.source_id
            self.routers.clear()
        self.anchors.append(Anchor(body.dest_seq, body.source_id, body.cursor))
        if body.name:
            known = self.routers.get(body.name)
            self._add(
                body.name, body.definition, body.number, known.forwarded_total if known else 0
            )

    def save(self, *, cursor: int) -> LinkSnapshot:
        """Return what a snapshot says of it, with copies up to a cursor in the topic."""
        routers = [
            RouterSnapshot(r.name, r.definition.as_dict(), r.number, r.forwarded_total)
            for r in self.routers.values()
        ]
        return LinkSnapshot(self.source_id, cursor, routers)

    def _add(self, name: str, fields: dict[str, object], number: int, total: int) -> None:
        definition = RouterDefinition.from_fields(fields)
        self.routers[name] = Router(name, definition, number=number, forwarded_total=total)


def build_links(found: dict[int, FoundLink], topics: dict[int, Topic]) -> list[Link]:
    """Connect topics as the newest definitions say; a router without a topic is gone with it."""
    newest: dict[str, int] = {}
    for told in found.values():
        for router in told.routers.values():
            newest[router.name] = max(router.number, newest.get(router.name, 0))
    links = []
    for dest_id, told in sorted(found.items()):
        routers = [r for r in told.routers.values() if r.number == newest[r.name]]
        if not routers or dest_id not in topics or told.source_id not in topics:
            continue
        link = Link(topics[told.source_id], topics[dest_id], cursor=0, durable_cursor=0)
        link.routers = tuple(sorted(routers, key=lambda router: router.name))
        link.dest.link = link
        links.append(link)
    mark_cycles(links)
    return links


def in_order(links: list[Link]) -> Iterator[Link]:
    """Yield each link after those that its source is made of."""
    done: set[int] = set()
    for link in links:
        chain: list[Link] = []
        above: Link | None = link
        while above is not None and above not in chain and above.dest.id not in done:
            chain.append(above)
            above = above.source.link
        for each in reversed(chain):
            done.add(each.dest.id)
            yield each


class Rebuild:
    """The copies of one destination. `link` is None where their source is gone."""

    def __init__(self, topic: Topic, told: FoundLink, link: Link | None) -> None:
        self._topic = topic
        self._told = told
        self._link = link
        self._seq = topic.absorbed_seq + 1
        self._ts = max([s.last_ts for s in topic.segments()], default=0)
        self.new_holes: list[Hole] = []

    def run(self) -> None:
        topic, told, link = self._topic, self._told, self._link
        anchors = [a for a in told.anchors if a.dest_seq >= self._seq]
        if link is not None:
            begins = (a.cursor for a in [told.base, *anchors] if a.source_id == link.source.id)
            link.cursor = link.durable_cursor = next(begins, 0)
        for first_seq, last_seq, last_ts in self._occupied():
            self._pass(anchors, first_seq)
            self._lose(first_seq - 1)
            self._seq = max(self._seq, last_seq + 1)
            self._ts = max(self._ts, last_ts)
        self._pass(anchors, _END)
        if link is not None:
            self._lose(topic.head_seq)
        topic.runs.sort(key=lambda run: run.first_seq)
        topic.head_seq = max(topic.head_seq, self._seq - 1)
        topic.next_seq = topic.head_seq + 1
        topic.last_ts = max(topic.last_ts, self._ts)
        for delete in told.deletes:
            apply_delete(topic, delete)

    def _occupied(self) -> list[tuple[int, int, int]]:
        """Return what the log itself has behind the segments: writes, and holes."""
        topic = self._topic
        chunks = [(c.first_seq, c.last_seq, c.last_ts) for c in topic.chunks()]
        holes = [(h.first_seq, h.last_seq, 0) for h in topic.holes if h.last_seq >= self._seq]
        return sorted(chunks + holes)

    def _pass(self, anchors: list[Anchor], boundary: int) -> None:
        """Fill up to a boundary, going on from each anchor on the way."""
        while anchors and anchors[0].dest_seq <= boundary:
            anchor = anchors.pop(0)
            self._fill(anchor.dest_seq)
            self._lose(anchor.dest_seq - 1)
            self._move(anchor)
        self._fill(boundary)

    def _move(self, anchor: Anchor) -> None:
        link = self._link
        if link is not None and anchor.source_id == link.source.id:
            link.cursor = max(link.cursor, anchor.cursor)

    def _fill(self, boundary: int) -> None:
        """Make copies until the boundary is reached or the source has no more."""
        link, topic = self._link, self._topic
        if link is None or not topic.config.persists:
            return
        if boundary == _END and not link.derives:
            return  # whatever was copied is on the log
        while self._seq < boundary:
            found = next(link.source.runs_from(link.cursor + 1), None)
            if found is None:
                return
            run, start = found
            copies, stop = copy_run(link, run, start, min(run.count, start + STEP_RECORDS))
            upto = run.first_seq + stop - 1
            if copies.count > boundary - self._seq:
                copies.cut(boundary - self._seq)
                upto = copies.last_source
            link.cursor = upto
            copies.credit()
            if copies.count:
                flags = FLAG_DURABLE if topic.config.durable else 0
                batch, self._ts = copies.stamp(
                    topic_id=topic.id, first_seq=self._seq, last_ts=self._ts, flags=flags
                )
                topic.runs.append(
                    Chunk(
                        self._seq,
                        count=batch.count,
                        frames=batch.frames,
                        idx=batch.idx,
                        durable=True,
                    )
                )
                self._seq += batch.count

    def _lose(self, last_seq: int) -> None:
        """Give up the seqs up to one; what was deleted before is not lost."""
        topic = self._topic
        first_seq = self._seq
        if last_seq < first_seq:
            return
        live_from = min(max(first_seq, topic.floors.earliest_seq), last_seq + 1)
        for hole in (Hole(first_seq, live_from - 1, "deleted"), Hole(live_from, last_seq, "crash")):
            if hole.first_seq <= hole.last_seq:
                topic.apply_hole(hole)
                self.new_holes.append(hole)
        self._seq = last_seq + 1
