"""One file of a hostile disk: what readers see, and what of it is not synced yet."""

from topics.storage.disk.ram_disk import RamContent
from topics.testing.hostile_power_cut import Change, CutOutcome, Epoch


class HostileInode:
    """Owns the bytes of one file and the changes since its last sync.

    Only the current bytes are kept, with what undoes each unsynced change: so a sync costs nothing,
    and a disk that is copied shares its files until they are opened. The lock of the disk guards
    every method but reads of `content`.
    """

    __slots__ = ("_frozen", "content", "epochs", "synced_end", "unsynced", "written_end")

    def __init__(self, frozen: bytes = b"", *, written_end: int = 0) -> None:
        self._frozen: bytes | None = frozen
        self.content: RamContent | None = None
        self.unsynced: list[Change] = []
        self.epochs: list[Epoch] = []  # empty until a sync fails
        # Room behind this was never written by a synced write: only there may a cut leave noise.
        self.synced_end = self.written_end = min(written_end, len(frozen))

    def thaw(self) -> RamContent:
        """Return the bytes to be changed or looked at in place."""
        if self.content is None:
            assert self._frozen is not None
            self.content = RamContent(self._frozen)
        return self.content

    def freeze(self) -> bytes:
        """Return the whole file."""
        if self._frozen is None:
            assert self.content is not None
            self._frozen = self.content.read(0, self.content.size)
        return self._frozen

    def size(self) -> int:
        return self.content.size if self.content is not None else len(self.freeze())

    def write(self, offset: int, new: bytes) -> None:
        if not new:
            return
        content = self.content or self.thaw()
        old_size = content.size
        old = content.read(offset, len(new)) if offset < old_size else b""
        content.write(offset, new)
        self.unsynced.append(Change(offset, old, new, old_size, content.size))
        self.written_end = max(self.written_end, offset + len(new))
        self._frozen = None

    def resize(self, size: int) -> None:
        content = self.content or self.thaw()
        old_size = content.size
        if size == old_size:
            return
        old = content.read(size, old_size - size) if size < old_size else b""
        content.resize(size)
        self.unsynced.append(Change(min(size, old_size), old, b"", old_size, size))
        self.written_end = min(self.written_end, size)
        self._frozen = None

    def sync(self) -> None:
        """Make all changes durable, but those that an earlier sync failed to write."""
        if self.epochs and self.unsynced:
            self.epochs.append(Epoch(self.unsynced, synced=True))
        self.unsynced = []
        self.synced_end = self.written_end

    def fail_sync(self) -> None:
        """Leave the changes readable, and not durable whatever sync follows."""
        if self.unsynced:
            self.epochs.append(Epoch(self.unsynced, synced=False))
            self.unsynced = []

    def flip_bit(self, bit_offset: int) -> None:
        offset, bit = divmod(bit_offset, 8)
        assert 0 <= offset < self.size(), "there is no such bit in the file"
        content = self.thaw()
        (byte,) = content.read(offset, 1)
        content.write(offset, bytes([byte ^ (1 << bit)]))
        self._frozen = None

    def copy(self) -> "HostileInode":
        """Return the same file for a process that goes on with the same page cache."""
        copied = HostileInode(self.freeze(), written_end=self.written_end)
        copied.synced_end = self.synced_end
        copied.unsynced = self.unsynced.copy()
        copied.epochs = self.epochs.copy()
        return copied

    def after_power_cut(self, outcome: CutOutcome) -> "HostileInode":
        found = self.freeze()
        if self.epochs or self.unsynced:
            epochs = [*self.epochs, Epoch(self.unsynced, synced=False)]
            found = outcome.content(found, epochs, synced_end=self.synced_end)
        return HostileInode(found, written_end=self.written_end)
