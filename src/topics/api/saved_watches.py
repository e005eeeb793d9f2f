"""Watches through a restart: the log they are kept in, `meta/watches.log`.

A browser comes back to the same URL by itself, with the id of the last frame it saw. Owns the file:
what was made and what has ended is put at its end, and now and then it is written anew without what
is gone. Byte for byte: docs/internals/formats/watches.md.
Keeps: what `append` and `finish` have returned from survives a power cut; a torn end costs only
what was being added; a watch is given back only to the key that made it, if that may still see
all of its names.
"""

import struct
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from topics.engine.watch.place import Place
from topics.engine.watch.watcher import Watcher
from topics.kernel import xxh3_64
from topics.storage.disk import paths
from topics.storage.disk.disk import Disk, DiskFile

MAGIC = b"TPWL"
VERSION = 1
HEADER = struct.Struct("<4sI")
ENTRY = struct.Struct("<IQ")
"""Bytes and checksum of the JSON that follows."""
SLACK_BYTES = 1024 * 1024
"""So much of the file may be about watches that are gone, besides as much as there is of others."""


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


class _Named(Struct, frozen=True, kw_only=True):
    """An entry, as far as it must be read to know whether it counts."""

    wid: str
    ended: bool = False


_DECODE_OLD = msgspec.json.Decoder(list[SavedWatch]).decode
_DECODE = msgspec.json.Decoder(SavedWatch).decode
_DECODE_NAMED = msgspec.json.Decoder(_Named).decode


def save_places(watcher: Watcher) -> list[SavedPlace]:
    return [SavedPlace.of(place) for place in list(watcher.places.values())]


def encode_entry(body: bytes) -> bytes:
    return ENTRY.pack(len(body), xxh3_64(body)) + body


def decode_entries(content: bytes) -> Iterator[tuple[bytes, int]]:
    """Return each whole entry and where it ends, up to the first that is not."""
    if content[: HEADER.size] != HEADER.pack(MAGIC, VERSION):
        return
    at, view = HEADER.size, memoryview(content)
    yield b"", at
    while at + ENTRY.size <= len(content):
        size, checksum = ENTRY.unpack_from(content, at)
        body = bytes(view[at + ENTRY.size : at + ENTRY.size + size])
        if len(body) < size or xxh3_64(body) != checksum:
            return
        at += ENTRY.size + size
        yield body, at


class SavedWatches:
    """The file, and how much of it counts."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._file: DiskFile | None = None
        """None: there is none yet, or a write to it failed; then it must be written anew."""
        self._size = 0
        self._sizes: dict[str, int] = {}
        """Of the newest entry of each watch that has not ended."""
        self._live_bytes = 0
        self._new: DiskFile | None = None
        """The next file, while it is written."""

    def load(self) -> list[SavedWatch]:
        """Return what was saved; nothing where it cannot be read: a page makes a new watch then."""
        try:
            if self._disk.exists(paths.WATCH_LOG):
                return self._load_log(self._disk.read(paths.WATCH_LOG))
            if self._disk.exists(paths.OLD_WATCHES):  # the next rewrite takes it over
                return _DECODE_OLD(self._disk.read(paths.OLD_WATCHES))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pass
        return []

    def _load_log(self, content: bytes) -> list[SavedWatch]:
        newest: dict[str, bytes] = {}
        end = 0
        for body, at in decode_entries(content):
            end = at
            if body:
                entry = _DECODE_NAMED(body)
                newest.pop(entry.wid, None)
                if not entry.ended:
                    newest[entry.wid] = body
        found = [_DECODE(body) for body in newest.values()]
        if end:
            self._file = self._disk.open(paths.WATCH_LOG)
            self._file.truncate(end)  # what was torn must not come back behind what is added
            self._file.sync_data()  # nor may a power cut take what a killed process had not synced
            self._size = end
            for wid, body in newest.items():
                self._note(wid, ENTRY.size + len(body))
        return found

    @property
    def is_due(self) -> bool:
        """Tell whether the file had better be written anew than added to."""
        return self._file is None or self._size > 2 * self._live_bytes + SLACK_BYTES

    def append(self, made: Iterable[SavedWatch], ended: Iterable[str]) -> None:
        """Add watches, and the ends of watches; durable when it returns."""
        file, self._file = self._file, None  # until all went well
        assert file is not None
        entries = [self._encode(watch) for watch in made]
        gone = [_Named(wid=wid, ended=True) for wid in ended if self._forget(wid)]
        entries += [encode_entry(msgspec.json.encode(end)) for end in gone]
        file.write_at(self._size, entries)
        file.sync_data()
        self._size += sum(map(len, entries))
        self._file = file

    # Writing it anew, a part at a time: other calls come in between.

    def begin(self) -> None:
        self.close()
        self._new = self._disk.create(paths.WATCH_LOG + paths.TEMPORARY_SUFFIX)
        self._new.write_at(0, [HEADER.pack(MAGIC, VERSION)])
        self._size = HEADER.size
        self._sizes.clear()
        self._live_bytes = 0

    def add(self, watches: Iterable[SavedWatch]) -> None:
        assert self._new is not None
        for watch in watches:
            entry = self._encode(watch)
            self._new.write_at(self._size, [entry])
            self._size += len(entry)

    def finish(self) -> None:
        """Let the new file take the place of the old one; durable when it returns."""
        file, self._new = self._new, None
        assert file is not None
        file.sync_data()
        self._disk.rename(paths.WATCH_LOG + paths.TEMPORARY_SUFFIX, paths.WATCH_LOG)
        self._disk.sync_dir(paths.META_DIR)
        self._file = file
        if self._disk.exists(paths.OLD_WATCHES):
            self._disk.unlink(paths.OLD_WATCHES)

    def close(self) -> None:
        for file in (self._file, self._new):
            if file is not None:
                file.close()
        self._file = self._new = None

    def _encode(self, watch: SavedWatch) -> bytes:
        entry = encode_entry(msgspec.json.encode(watch))
        self._note(watch.wid, len(entry))
        return entry

    def _note(self, wid: str, size: int) -> None:
        self._forget(wid)
        self._sizes[wid] = size
        self._live_bytes += size

    def _forget(self, wid: str) -> bool:
        size = self._sizes.pop(wid, 0)
        self._live_bytes -= size
        return size > 0
