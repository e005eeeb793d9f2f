"""A disk in memory that does whatever a real one may do when the power is cut.

What a cut may do to a **file**. Everything before its last successful `sync_data` is there. Of the
writes, allocations and truncations after it, any subset survives, applied in any order, but what a
surviving truncation cut off stays off. A write may survive in part, by sectors of 512 bytes: a
sector of it is there or is not. The size of the file is what the survivors made it, or any size it
had since the sync (and since a surviving truncation), with zeros where no data arrived. A sector
that overwrites synced bytes is old or new. Into fresh room, behind the end of all synced writes, a
write may leave a sector of noise. Bytes that were synced and not overwritten since never change.
(`Damage` sets the odds of noise, and can mix old and new bytes inside one sector.)

What a cut may do to a **name**. `create`, `rename`, `unlink` and `remove_dir` survive for sure
after `sync_dir` of their directory; for a rename, of the directory of its target. Syncing a file
does nothing for its name. Of the unsynced changes any subset survives, but changes of one path
survive in their order: so a new file may be gone with all its synced bytes, a removed one may be
back, a replaced one may be the old one; a renamed file has one of its two names, never none and
never both. A directory that survived its removal has back what was unlinked in it, if that was not
synced. `make_dir` is durable when it returns.

After a **failed** `sync_data` the kernel calls the pages clean: the changes it should have written
can be read, but no later sync makes them durable; a cut keeps any subset of them (fsyncgate). A
failed `sync_dir` changes nothing. All other calls that fail have no effect, but for short writes.

A **kill** keeps all, synced or not, and the page cache; a later cut can still take it.

Only calls that change the disk are cut points: `calls_made` counts them, `FaultPlan` picks one.
"""

from typing import Final

from topics.errors import DirectoryLocked
from topics.storage.disk.disk import Room
from topics.storage.disk.local_disk import parse_path
from topics.testing.hostile_calls import HostileCalls
from topics.testing.hostile_faults import NO_FAULTS, FaultPlan
from topics.testing.hostile_file import HostileFile, HostileLock
from topics.testing.hostile_inode import HostileInode
from topics.testing.hostile_names import DurableNames, HostileNames
from topics.testing.hostile_power_cut import CutOutcome, Damage

DEFAULT_DAMAGE: Final = Damage()


class HostileDisk:
    """A disk as one process sees it: after a cut or a kill, the next process has another one."""

    def __init__(
        self,
        plan: FaultPlan = NO_FAULTS,
        *,
        damage: Damage = DEFAULT_DAMAGE,
        knows_page_cache: bool = True,
    ) -> None:
        self._calls = HostileCalls(plan)
        self._damage = damage
        self._knows_page_cache = knows_page_cache
        self._boots = 0
        self._names = HostileNames(DurableNames({}, set()))
        self._held_locks: set[str] = set()

    # What a test does to the disk.

    @property
    def calls_made(self) -> int:
        """How many calls that change the disk were let in; the failed ones count."""
        return self._calls.made

    @property
    def calls(self) -> list[tuple[str, str]]:
        """The last of these calls, as (operation, path)."""
        return list(self._calls.trace)

    @property
    def is_gone(self) -> bool:
        """Whether the process of this disk was cut off or killed."""
        return self._calls.gone

    def arm(self, plan: FaultPlan) -> None:
        """Plan other faults; calls are counted for them from here."""
        with self._calls.lock:
            self._calls.arm(plan)

    def power_cut(self, seed: int, *, plan: FaultPlan = NO_FAULTS) -> "HostileDisk":
        """Return the disk that the next process finds; every call on this one is over.

        May be called again: each seed is another outcome of the same cut. Seed 0 loses all that was
        not synced, seed 1 nothing, any other one some of it.
        """
        with self._calls.lock:
            self._calls.gone = True
            names = self._names.after_power_cut(CutOutcome(seed, self._damage))
        return self._next(names, plan, boots=self._boots + 1)

    def kill(self, *, plan: FaultPlan = NO_FAULTS) -> "HostileDisk":
        """Return the disk that the next process finds after kill -9: all is there, unsynced."""
        with self._calls.lock:
            self._calls.gone = True
        return self.copy(plan=plan)

    def copy(self, *, plan: FaultPlan = NO_FAULTS) -> "HostileDisk":
        """Return the same disk for another process that knows nothing of this one."""
        with self._calls.lock:
            names = self._names.copy()
        return self._next(names, plan, boots=self._boots)

    def flip_bit(self, path: str, bit_offset: int) -> None:
        """Damage a file at rest: the flipped bit is read now and after a cut."""
        with self._calls.lock:
            self._names.tree.get(path).flip_bit(bit_offset)

    def _next(self, names: HostileNames, plan: FaultPlan, *, boots: int) -> "HostileDisk":
        disk = HostileDisk(plan, damage=self._damage, knows_page_cache=self._knows_page_cache)
        disk._names = names
        disk._boots = boots
        return disk

    # What the engine does.

    def create(self, path: str) -> HostileFile:
        with self._calls.lock:
            self._calls.begin_or_fail("create", path)
            inode = HostileInode()
            self._names.create(path, inode)
            return HostileFile(self._calls, inode, path)

    def open(self, path: str) -> HostileFile:
        with self._calls.lock:
            self._calls.look("open", path)
            return HostileFile(self._calls, self._names.tree.get(path), path)

    def read(self, path: str) -> bytes:
        with self._calls.lock:
            self._calls.look("read", path)
            return self._names.tree.get(path).freeze()

    def map(self, path: str) -> memoryview:
        with self._calls.lock:
            self._calls.look("map", path)
            return self._names.tree.get(path).thaw().view()

    def exists(self, path: str) -> bool:
        self._calls.look("exists", path)
        return self._names.tree.exists(path)

    def size(self, path: str) -> int:
        with self._calls.lock:
            self._calls.look("size", path)
            return self._names.tree.get(path).size()

    def list(self, path: str) -> list[str]:
        self._calls.look("list", path)
        return self._names.tree.list(path)

    def make_dir(self, path: str) -> None:
        with self._calls.lock:
            self._calls.begin_or_fail("make_dir", path)
            self._names.make_dir(path)

    def remove_dir(self, path: str) -> None:
        with self._calls.lock:
            self._calls.begin_or_fail("remove_dir", path)
            self._names.remove_dir(path)

    def rename(self, source: str, target: str) -> None:
        with self._calls.lock:
            self._calls.begin_or_fail("rename", f"{source} -> {target}")
            self._names.rename(source, target)

    def unlink(self, path: str) -> None:
        with self._calls.lock:
            self._calls.begin_or_fail("unlink", path)
            self._names.unlink(path)

    def sync_dir(self, path: str) -> None:
        with self._calls.lock:
            self._calls.begin_or_fail("sync_dir", path)
            self._names.tree.directory(path)
            self._names.sync_dir(path)

    def lock(self, path: str) -> HostileLock:
        with self._calls.lock:
            self._calls.look("lock", path)
            path = parse_path(path)
            if path in self._held_locks:
                raise DirectoryLocked(f"another process has the directory of {path} open")
            if not self._names.tree.exists(path):
                self._names.create(path, HostileInode())
            self._held_locks.add(path)
            return HostileLock(self._held_locks, path)

    def location(self, path: str) -> str | None:
        return f"hostile:///{parse_path(path)}"

    def room(self) -> Room | None:
        return None

    def page_cache_id(self) -> str | None:
        self._calls.look("page_cache_id", "")
        return f"boot-{self._boots}" if self._knows_page_cache else None
