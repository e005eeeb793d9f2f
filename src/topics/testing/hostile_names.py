"""The directories of a hostile disk: what a listing shows, and what of it is not synced yet."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from topics.storage.disk.local_disk import parse_path
from topics.storage.disk.ram_disk import NameTree
from topics.testing.hostile_inode import HostileInode
from topics.testing.hostile_power_cut import CutOutcome, NameChange, with_predecessors

InodeChange = NameChange[HostileInode]


class DurableNames(NamedTuple):
    """What a power cut cannot take any more."""

    files: dict[str, HostileInode]
    directories: set[str]

    def copy(self) -> "DurableNames":
        return DurableNames(self.files.copy(), self.directories.copy())

    def apply(self, changes: Iterable[InodeChange]) -> None:
        for change in changes:
            for path, inode in change.becomes:
                self.directories.discard(path)
                if inode is None:
                    self.files.pop(path, None)
                else:
                    self.files[path] = inode


class HostileNames:
    """Owns the durable names and the unsynced changes that lead from them to the current ones."""

    def __init__(self, durable: DurableNames, unsynced: Sequence[InodeChange] = ()) -> None:
        self._durable = durable
        self._unsynced = list(unsynced)
        self.tree: NameTree[HostileInode] = NameTree()
        current = durable.copy()
        current.apply(unsynced)
        for directory in current.directories:
            self.tree.make_dir(directory)
        for path, inode in current.files.items():
            self.tree.put(path, inode)

    def create(self, path: str, inode: HostileInode) -> None:
        replaces = self.tree.exists(path)
        self.tree.put(path, inode)
        if replaces:  # in two steps, with nothing between them
            self._note(path, {parse_path(path): None})
        self._note(path, {parse_path(path): inode})

    def unlink(self, path: str) -> None:
        self.tree.remove(path)
        self._note(path, {parse_path(path): None})

    def rename(self, source: str, target: str) -> None:
        self.tree.move(source, target)
        if parse_path(source) != parse_path(target):
            moved = self.tree.get(target)
            self._note(target, {parse_path(source): None, parse_path(target): moved})

    def make_dir(self, path: str) -> None:
        """Make it durable at once, and with it the end of what had the name before."""
        self.tree.make_dir(path)
        names = parse_path(path).split("/")
        made = {"/".join(names[: i + 1]) for i in range(len(names))} - {""}
        self._make_durable([not made.isdisjoint(change.touches) for change in self._unsynced])
        self._durable.directories.update(made)

    def remove_dir(self, path: str) -> None:
        """Remove a directory: if that survives, so does all that emptied it."""
        if self.tree.remove_dir(path):
            inside = parse_path(path) + "/"
            touched = {name for change in self._unsynced for name in change.touches}
            emptied = {name for name in touched if name.startswith(inside)}
            self._note(path, {parse_path(path): None}, builds_on=emptied)

    def sync_dir(self, path: str) -> None:
        path = parse_path(path)
        self._make_durable([change.directory == path for change in self._unsynced])

    def copy(self) -> "HostileNames":
        """Return the same names, synced or not, for copies of the same files."""
        inodes = [*self._durable.files.values()]
        inodes += [inode for change in self._unsynced for _, inode in change.becomes if inode]
        copies = {inode: inode.copy() for inode in dict.fromkeys(inodes)}
        files = {path: copies[inode] for path, inode in self._durable.files.items()}
        unsynced = [
            change._replace(
                becomes=tuple((path, inode and copies[inode]) for path, inode in change.becomes)
            )
            for change in self._unsynced
        ]
        return HostileNames(DurableNames(files, self._durable.directories.copy()), unsynced)

    def after_power_cut(self, outcome: CutOutcome) -> "HostileNames":
        kept = self._durable.copy()
        kept.apply(outcome.names(self._unsynced))
        files = {path: inode.after_power_cut(outcome) for path, inode in sorted(kept.files.items())}
        return HostileNames(DurableNames(files, kept.directories))

    def _note(
        self,
        path: str,
        becomes: Mapping[str, HostileInode | None],
        builds_on: AbstractSet[str] = frozenset(),
    ) -> None:
        directory = parse_path(path).rpartition("/")[0]
        touches = frozenset(becomes) | builds_on
        self._unsynced.append(NameChange(directory, touches, tuple(becomes.items())))

    def _make_durable(self, wanted: Sequence[bool]) -> None:
        if not any(wanted):
            return
        durable = with_predecessors(self._unsynced, wanted)
        self._durable.apply(durable)
        done = set(map(id, durable))
        self._unsynced = [change for change in self._unsynced if id(change) not in done]
