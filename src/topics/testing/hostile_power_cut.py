"""Which bytes and which names are there after a power cut: the pure half of the hostile disk.

The model is written down in `topics.testing.hostile_disk`. Here one seed becomes one outcome.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Generic, NamedTuple, TypeVar

SECTOR_BYTES: Final = 512
KEEP_NOTHING: Final = 0  # the seed of the cut that loses all that was not synced
KEEP_EVERYTHING: Final = 1  # the seed of the cut that loses nothing

_STYLES: Final = (
    *("nothing", "everything"),
    *("prefix", "prefix", "subset", "subset", "disorder", "disorder"),
)

Node = TypeVar("Node")


class Change(NamedTuple):
    """One write, allocation or truncation of a file, with what is needed to undo it."""

    offset: int
    old: bytes
    new: bytes
    old_size: int
    new_size: int

    @property
    def shrinks(self) -> bool:
        return self.new_size < self.old_size


class Epoch(NamedTuple):
    """Changes between two syncs. All of a synced one survive; of another one any part may."""

    changes: Sequence[Change]
    synced: bool


class NameChange(NamedTuple, Generic[Node]):
    """One create, rename, unlink or removal of a directory: it survives whole or not at all.

    `directory` is the one whose sync makes it durable, `touches` are the paths on which it comes
    after earlier changes, `becomes` says what is there afterwards: a node, or None for nothing.
    """

    directory: str
    touches: frozenset[str]
    becomes: tuple[tuple[str, Node | None], ...]


@dataclass(frozen=True, slots=True)
class Damage:
    """How cruel a cut is beyond losing and tearing."""

    garbled_write_odds: float = 0.1
    """How often a surviving write into fresh room has one sector of random bytes."""
    mixed_sector_odds: float = 0.0
    """How often a surviving sector is new only up to some byte, and old behind it."""


class CutOutcome:
    """The choices of one seed. Ask in a fixed order: each answer takes from the same chance."""

    def __init__(self, seed: int, damage: Damage) -> None:
        self._chance = Random(seed)
        self._fixed_share = {KEEP_NOTHING: 0.0, KEEP_EVERYTHING: 1.0}.get(seed)
        self._damage = damage

    def content(self, current: bytes, epochs: Sequence[Epoch], *, synced_end: int) -> bytes:
        """Return a file as it may be found. Bytes before `synced_end` are never garbled."""
        image = undo_changes(current, epochs)
        for epoch in epochs:
            if epoch.synced or self._fixed_share == 1.0:
                apply_changes(image, epoch.changes)
            elif self._fixed_share is None and epoch.changes:
                self._apply_some(image, epoch.changes, synced_end)
        return bytes(image)

    def names(self, changes: Sequence[NameChange[Node]]) -> list[NameChange[Node]]:
        """Return the changes that survive: with each, all earlier ones on the same paths."""
        share = self._fixed_share
        if share is None:
            share = self._chance.choice((0.0, 0.3, 0.5, 0.8, 1.0))
        wanted = [self._chance.random() < share for _ in changes]
        if self._chance.random() < 0.5:
            return with_predecessors(changes, wanted)
        return without_orphans(changes, wanted)

    def _apply_some(self, image: bytearray, changes: Sequence[Change], synced_end: int) -> None:
        size_before = len(image)
        kept, tear_odds = self._choose(changes)
        for change in (changes[i] for i in kept):
            if change.new and self._chance.random() < tear_odds:
                apply_changes(image, self._tear(change))
            else:
                apply_changes(image, (change,))
            if change.new and self._chance.random() < self._damage.garbled_write_odds:
                self._garble(image, change, synced_end)
        if self._chance.random() < 0.4:  # the size is written apart from the data
            cut_at = max((i for i in kept if changes[i].shrinks), default=None)
            sizes = [len(image) if cut_at is not None else size_before]
            sizes += [change.new_size for change in changes[cut_at or 0 :]]
            resize(image, self._chance.choice(sizes))

    def _choose(self, changes: Sequence[Change]) -> tuple[Sequence[int], float]:
        """Return the changes that survive, in the order they arrive, and how often they tear."""
        chance = self._chance
        style = chance.choice(_STYLES)
        if style == "nothing":
            return (), 0.0
        if style == "everything":
            return range(len(changes)), 0.0
        if style == "prefix":
            return range(chance.randint(1, len(changes))), 0.2
        share = chance.uniform(0.4, 1.0)
        kept = [i for i in range(len(changes)) if chance.random() < share]
        return self._disorder(changes, kept) if style == "disorder" else kept, 0.3

    def _disorder(self, changes: Sequence[Change], kept: Sequence[int]) -> list[int]:
        """Shuffle; but a truncation that survives is not undone by what came before it."""
        disorder: list[int] = []
        run: list[int] = []
        for i in kept:
            if changes[i].shrinks:
                disorder += [*self._chance.sample(run, len(run)), i]
                run = []
            else:
                run.append(i)
        return disorder + self._chance.sample(run, len(run))

    def _tear(self, change: Change) -> Iterator[Change]:
        """Yield the sectors of a write that survive."""
        sectors = list(sectors_of(change))
        if self._chance.random() < 0.5:  # cut off at one place
            bits = (1 << self._chance.randint(0, len(sectors))) - 1
        else:
            bits = self._chance.getrandbits(len(sectors))
        for i, sector in enumerate(sectors):
            if bits >> i & 1:
                yield self._mix(sector)

    def _mix(self, sector: Change) -> Change:
        if self._chance.random() >= self._damage.mixed_sector_odds:
            return sector
        return sector._replace(new=sector.new[: self._chance.randint(1, len(sector.new))])

    def _garble(self, image: bytearray, change: Change, synced_end: int) -> None:
        sector = self._chance.choice(list(sectors_of(change)))
        start = max(sector.offset, synced_end)
        end = sector.offset + len(sector.new)
        if start < end:
            noise = self._chance.randbytes(end - start)
            apply_changes(image, (sector._replace(offset=start, new=noise),))


def sectors_of(write: Change) -> Iterator[Change]:
    """Split a write where the device does: at the borders of its sectors."""
    start, end = write.offset, write.offset + len(write.new)
    while start < end:
        border = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        part = write.new[start - write.offset : border - write.offset]
        yield write._replace(offset=start, new=part)
        start = border


def undo_changes(current: bytes, epochs: Sequence[Epoch]) -> bytearray:
    """Return the file as it was before all of them."""
    image = bytearray(current)
    for epoch in reversed(epochs):
        for change in reversed(epoch.changes):
            resize(image, change.old_size)
            image[change.offset : change.offset + len(change.old)] = change.old
    return image


def apply_changes(image: bytearray, changes: Iterable[Change]) -> None:
    for change in changes:
        if change.new:
            end = change.offset + len(change.new)
            resize(image, max(len(image), end))
            image[change.offset : end] = change.new
        elif change.shrinks:
            resize(image, change.new_size)
        else:
            resize(image, max(len(image), change.new_size))


def resize(image: bytearray, size: int) -> None:
    if size < len(image):
        del image[size:]
    else:
        image.extend(bytes(size - len(image)))


def with_predecessors(
    changes: Sequence[NameChange[Node]], wanted: Sequence[bool]
) -> list[NameChange[Node]]:
    """Return the wanted changes and what they build on, in order."""
    kept: list[NameChange[Node]] = []
    needed: set[str] = set()
    for change, is_wanted in zip(reversed(changes), reversed(wanted), strict=True):
        if is_wanted or not needed.isdisjoint(change.touches):
            kept.append(change)
            needed |= change.touches
    return kept[::-1]


def without_orphans(
    changes: Sequence[NameChange[Node]], wanted: Sequence[bool]
) -> list[NameChange[Node]]:
    """Return the wanted changes but those that build on an unwanted one, in order."""
    kept: list[NameChange[Node]] = []
    lost: set[str] = set()
    for change, is_wanted in zip(changes, wanted, strict=True):
        if is_wanted and lost.isdisjoint(change.touches):
            kept.append(change)
        else:
            lost |= change.touches
    return kept
