"""Which topics a query reads and how far they reach: asked of a server, or of a directory."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from topics.errors import TopicNotFound
from topics.kernel.layout import IDX_ENTRY
from topics.model.segments import Manifest
from topics.pipeline.offsets import Part, PartState
from topics.pipeline.server import Server, TopicInfo


class Catalog(Protocol):
    """What can be known before a record is read."""

    def states(self, topics: Sequence[str], *, skip_missing: bool = False) -> list[PartState]:
        """Find the parts that names and prefixes stand for.

        A name that is not there is `TopicNotFound`, unless it may be missing.
        """

    def manifest(self, part: Part, *, pin_ms: int | None = None) -> Manifest: ...

    def seq_at(self, state: PartState, ts: int) -> int:
        """Find the first seq whose time is `ts` or later; behind the head if there is none."""

    def close(self) -> None: ...


class ServerCatalog:
    """Asks a server."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def close(self) -> None:
        self._server.close()

    def states(self, topics: Sequence[str], *, skip_missing: bool = False) -> list[PartState]:
        found: dict[str, PartState] = {}
        for pattern in topics:
            for state in self._states_of(pattern, skip_missing=skip_missing):
                # A partition may be met twice, by its own name and as part of its topic.
                known = found.get(state.part.name)
                if known is None or known.part.topic == known.part.name:
                    found[state.part.name] = state
        return [found[name] for name in sorted(found)]

    def manifest(self, part: Part, *, pin_ms: int | None = None) -> Manifest:
        return self._server.manifest(part.name, pin_ms=pin_ms)

    def seq_at(self, state: PartState, ts: int) -> int:
        low, high = state.earliest_seq, state.head_seq + 1
        while low < high:
            middle = (low + high) // 2
            seq, found = self._entry_at(state, middle)
            if found is None or found >= ts:
                high = middle
            else:
                low = seq + 1
        return low

    def _entry_at(self, state: PartState, seq: int) -> tuple[int, int | None]:
        """Return seq and time of the first entry at or behind a seq."""
        page = self._server.read_range(
            state.part.name, epoch=state.epoch, from_seq=seq - 1, to_seq=0, max_bytes=1
        )
        if not page.parts:
            return state.head_seq, None
        return page.parts[0].head.first_seq, IDX_ENTRY.unpack_from(page.parts[0].idx)[2]

    def _states_of(self, pattern: str, *, skip_missing: bool) -> Iterable[PartState]:
        names: Iterable[str] = [pattern]
        if pattern.endswith("*"):
            names = self._server.list_topics(pattern[:-1])
            skip_missing = True  # a topic may be dropped after it was listed
        for name in names:
            try:
                yield from self._parts_of(self._server.topic(name))
            except TopicNotFound:
                if not skip_missing:
                    raise

    def _parts_of(self, info: TopicInfo) -> Iterable[PartState]:
        if not info.partitions:
            yield _state(Part(info.topic, info.topic), info)
            return
        for listed in info.partitions:
            child = self._server.topic(listed.topic)
            yield _state(Part(child.topic, info.topic, listed.partition), child)


def _state(part: Part, info: TopicInfo) -> PartState:
    return PartState(
        part=part,
        epoch=info.epoch,
        head_seq=info.head_seq,
        earliest_seq=info.earliest_seq,
        record_bytes=info.bytes // info.count if info.count else 0,
    )
