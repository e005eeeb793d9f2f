"""The log of a lake: the one place that says which files count.

Keeps: a commit is one file that appears whole under its name, after all files it names are synced.
Whoever reads the log sees all of a batch, in every table, or nothing of it; a batch that was
committed is not committed again. Files that no longer count stay for a grace time, for readers
that have begun. Layout: docs/internals/formats/lake.md.
"""

import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final
from urllib.parse import quote

import msgspec

from topics.clock import Clock, SystemClock
from topics.errors import DirectoryLocked, FileMissing, LakeConflict, OptionError
from topics.pipeline.lake.entry import (
    WHOLE_EVERY,
    Change,
    Entry,
    LakeState,
    apply_entry,
    first_needed,
)
from topics.pipeline.local_files import file_exists
from topics.storage.disk.disk import DiskLock
from topics.storage.disk.local_disk import LocalDisk

RAW: Final = "_raw"
GAPS: Final = "_gaps"
LOG_DIR: Final = "_log"
LOCK_DIR: Final = "_locks"
STAGING_DIR: Final = "_staging"
CHECKPOINT_DIR: Final = "_checkpoints"
COMMIT_PATIENCE_S: Final = 60.0
_TRIES: Final = 8


def check_root(root: str) -> str:
    """Return the directory of a lake, or say why it cannot be one."""
    path = root.removeprefix("file://")
    if "://" in path:
        raise OptionError(f"{root} is no directory: a lake lies in one that all of Spark shares")
    if not path.startswith("/") or not path.strip("/"):
        raise OptionError(f"{root} must be absolute: executors have other working directories")
    return path.rstrip("/")


def table_dir(table: str) -> str:
    """Return where the files of a table lie; Hadoop takes no colon there, Delta no percent sign."""
    if table.startswith("_"):
        return table[1:]
    return f"typed/{quote(table, safe='').replace('%', '+')}"


def has_lake(root: str) -> bool:
    return file_exists(f"{check_root(root)}/{LOG_DIR}")


def open_lake(root: str, *, clock: Clock | None = None) -> "LakeLog":
    """Open a lake that has to be there, and make none."""
    if not has_lake(root):
        raise OptionError(f"there is no lake in {root} on {socket.gethostname()}")
    return LakeLog(root, clock=clock)


class LakeLog:
    """The log below one root; any number of them may be open, in any process."""

    def __init__(self, root: str, *, clock: Clock | None = None) -> None:
        self.root = check_root(root)
        self.disk = LocalDisk(self.root, name=f"{self.root}/")
        self._clock = clock or SystemClock()
        for name in (LOG_DIR, LOCK_DIR):
            self.disk.make_dir(name)

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def load(self) -> LakeState:
        """Return the state now; entries may be trimmed meanwhile, then it looks again."""
        for _ in range(_TRIES):
            try:
                return self._load()
            except FileMissing:
                continue
        raise LakeConflict(f"the log of {self.root} has a hole: entries are missing")

    def commit(self, change: Change, *, forget: Sequence[str] = ()) -> LakeState:
        """Make a change visible; one of a batch that is there already changes nothing."""
        with self.locked("commit"):
            state = self.load()
            if state.has_batch(change):
                return state
            lost = [path for path in change.remove if path not in state.files]
            if lost:
                raise LakeConflict(f"{lost[0]} does not count any more: another run replaced it")
            for file in change.add:
                with closing(self.disk.open(file.path)) as opened:
                    opened.sync_data()
            for directory in {file.path.rpartition("/")[0] for file in change.add}:
                self.disk.sync_dir(directory)
            entry = Entry(
                version=state.version + 1,
                ts=self._clock.now_ms(),
                change=change,
                forget=tuple(forget),
            )
            state = apply_entry(state, entry)
            if entry.version % WHOLE_EVERY == 0:
                entry = msgspec.structs.replace(entry, whole=state)
            self._store(entry)
            return state

    def trim(self) -> int:
        """Delete entries that the last whole one but one repeats; return how many."""
        versions = self._versions()
        newest = first_needed(versions)
        keep_from = first_needed(v for v in versions if v < newest)
        old = [version for version in versions if version < keep_from]
        for version in old:
            self.disk.unlink(_entry_path(version))
        return len(old)

    @contextmanager
    def only_writer(self, name: str) -> Iterator[None]:
        """Be the only one under this name, in any process, until the end or the end of us."""
        try:
            lock = self.disk.lock(f"{LOCK_DIR}/{name}")
        except DirectoryLocked:
            raise LakeConflict(
                f"another process already runs `{name}` into {self.root}: stop it first"
            ) from None
        with closing(lock):
            yield

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Wait for a lock that others hold for a short while only."""
        deadline = self._clock.monotonic_s() + COMMIT_PATIENCE_S
        lock = self._try_lock(name)
        while lock is None:
            if self._clock.monotonic_s() > deadline:
                raise LakeConflict(f"{self.root} is locked by another {name}")
            self._clock.sleep(0.01)
            lock = self._try_lock(name)
        with closing(lock):
            yield

    def _try_lock(self, name: str) -> DiskLock | None:
        try:
            return self.disk.lock(f"{LOCK_DIR}/{name}")
        except DirectoryLocked:
            return None

    def _load(self) -> LakeState:
        versions = self._versions()
        state = LakeState()
        for version in versions[versions.index(first_needed(versions)) :] if versions else ():
            entry = msgspec.json.decode(self.disk.read(_entry_path(version)), type=Entry)
            state = apply_entry(state, entry)
        return state

    def _versions(self) -> list[int]:
        names = (name.partition(".") for name in self.disk.list(LOG_DIR))
        return sorted(int(stem) for stem, _, kind in names if kind == "json")

    def _store(self, entry: Entry) -> None:
        new = f"{LOG_DIR}/new"
        with closing(self.disk.create(new)) as file:
            file.write_at(0, [msgspec.json.encode(entry)])
            file.sync_data()
        self.disk.rename(new, _entry_path(entry.version))
        self.disk.sync_dir(LOG_DIR)


def _entry_path(version: int) -> str:
    return f"{LOG_DIR}/{version:020}.json"
