"""Room that is set apart on the device, for what has to go on when there is none left.

Owns `meta/reserve`. Given back when something finds no room: then deletes, acks, checkpoints and a
start go on in it, and no new records are taken (`is_short`) until it can be set apart again.
Why so: docs/internals/decisions/0051-a-reserve-for-a-full-disk.md.
"""

import threading
from contextlib import suppress
from typing import Final

from topics.clock import Clock
from topics.errors import DiskFailed, DiskFull
from topics.limits import MIB
from topics.storage.disk import paths
from topics.storage.disk.disk import Disk

STEP_BYTES: Final = 4096
AGAIN_S: Final = 1.0
"""So long nobody tries again what the disk has just refused although it seemed to have room."""


class Reserve:
    """The reserve of one data directory. Safe for many threads; takes no other lock."""

    def __init__(self, disk: Disk, *, size: int, margin_bytes: int, clock: Clock) -> None:
        """Keep `size` bytes; once they were given, writes go on when `margin_bytes` more are free.

        Without a margin the next file of the log would find the disk full at once.
        """
        self._disk = disk
        self._size = size
        self._margin_bytes = margin_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._held_bytes = 0
        self._refused_s = -AGAIN_S
        self.is_short = False
        """No records are taken: the disk was full, and there is not enough yet. Needs no lock."""

    def give(self) -> bool:
        """Give the room to the device; tell whether there was any to give."""
        with self._lock:
            self.is_short = True
            self._held_bytes = 0
            try:
                self._disk.unlink(paths.RESERVE)
            except DiskFailed:  # it was given before, or could not be made
                return False
            return self._size > 0

    def prepare(self, *, needed_bytes: int) -> None:
        """Make room for a start, if there is less than it may take."""
        room = self._disk.room()
        if room is not None and room.free_bytes < needed_bytes:
            self.give()

    def take(self) -> None:
        """Set the room apart when the log is open."""
        if not self.is_short:
            with self._lock:
                self.is_short = not self._hold(self._size)
        self.restore()

    def restore(self) -> bool:
        """Set apart again what there is, and see whether it is enough to take records."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            if self.is_short and now_s >= self._refused_s + AGAIN_S:
                room = self._disk.room()
                there = self._size if room is None else room.free_bytes + self._held_bytes
                if self._hold(min(self._size, there - there % STEP_BYTES)):
                    needed_bytes = self._size + self._margin_bytes
                    self.is_short = room is not None and there < needed_bytes
                else:
                    self._refused_s = now_s
            return not self.is_short

    def check(self) -> None:
        """Refuse a write for which there is no room."""
        if self.restore():
            return
        room = self._disk.room()
        needed_bytes = self._size + self._margin_bytes
        has = "" if room is None else f", {_mib(room.free_bytes)} of {_mib(room.total_bytes)} free"
        raise DiskFull(
            f"no space left on the device{has}: delete topics or records, let topics keep less "
            f"(ttl_ms, cap_bytes), or grow it. Reads and deletes go on, writes when there are "
            f"{_mib(needed_bytes)}",
            free_bytes=None if room is None else room.free_bytes,
            needed_bytes=needed_bytes,
        )

    def _hold(self, size: int) -> bool:
        """Have so much in the file; False where there is no room for it.

        What else fails is no reason to stop.
        """
        if size <= self._held_bytes:
            return True
        try:
            is_there = self._disk.exists(paths.RESERVE)
            file = (self._disk.open if is_there else self._disk.create)(paths.RESERVE)
            file.truncate(min(size, file.size()))  # of an older setting
            file.allocate(size)
            file.close()
        except DiskFull:
            self._held_bytes = 0
            with suppress(DiskFailed):
                self._disk.unlink(paths.RESERVE)
            return False
        except DiskFailed:
            return True
        self._held_bytes = size
        return True


def _mib(size: int) -> str:
    return f"{size / MIB:.0f} MiB" if size >= 10 * MIB else f"{size / MIB:.1f} MiB"
