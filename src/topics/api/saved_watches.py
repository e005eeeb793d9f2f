"""Watches through a restart: the file they are kept in.

A browser comes back to the same URL by itself, with the id of the last frame it saw. Keeps: a
watch is given back only to the key that made it, if that may still see all of its names.
"""

import msgspec
from msgspec import Struct

from topics.engine.watch.place import Place
from topics.engine.watch.watcher import Watcher
from topics.storage.disk import paths
from topics.storage.disk.data_dir import write_file
from topics.storage.disk.disk import Disk


class SavedPlace(Struct, frozen=True, kw_only=True):
    """Where a watch stood in one topic."""

    name: str
    life: int
    first_life: int
    seq: int
    asked: bool
    by_pattern: bool

    @classmethod
    def of(cls, place: Place) -> "SavedPlace":
        # The life first: a place that moves on meanwhile is saved too far back, never too far on.
        return cls(
            life=place.life,
            first_life=place.first_life,
            seq=place.seq,
            name=place.name,
            asked=place.asked,
            by_pattern=place.by_pattern,
        )


class SavedWatch(Struct, frozen=True, kw_only=True):
    """One watch: who made it, what was asked for, where it stood."""

    wid: str
    caller: str
    body: msgspec.Raw
    places: list[SavedPlace]


_DECODE = msgspec.json.Decoder(list[SavedWatch]).decode


def save_places(watcher: Watcher) -> list[SavedPlace]:
    return [SavedPlace.of(place) for place in list(watcher.places.values())]


def save_watches(disk: Disk, watches: list[SavedWatch]) -> None:
    write_file(disk, paths.WATCHES, msgspec.json.encode(watches))


def load_watches(disk: Disk) -> list[SavedWatch]:
    """Return what was saved; nothing where it cannot be read: a page makes a new watch then."""
    if not disk.exists(paths.WATCHES):
        return []
    try:
        return _DECODE(disk.read(paths.WATCHES))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []
