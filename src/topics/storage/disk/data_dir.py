"""The data directory as a whole: its format, its lock, and how the last process left it."""

from contextlib import suppress

from topics.errors import DiskFailed, DiskFull, UnknownFormat
from topics.storage.disk import paths
from topics.storage.disk.disk import Buffer, Disk, DiskLock

FORMAT_TEXT = b"topics 1\n"
_REMOVE_TRIES = 100


def open_data_dir(disk: Disk) -> DiskLock:
    """Lock the directory and check its format, writing it where there is none."""
    lock = disk.lock(paths.LOCK)
    try:
        for directory in (paths.META_DIR, paths.WAL_DIR, paths.TOPICS_DIR):
            disk.make_dir(directory)
        check_format(disk)
        if not disk.exists(paths.FORMAT):
            write_file(disk, paths.FORMAT, FORMAT_TEXT)
    except BaseException:
        lock.close()
        raise
    return lock


def check_format(disk: Disk) -> None:
    if disk.exists(paths.FORMAT) and (found := disk.read(paths.FORMAT)) != FORMAT_TEXT:
        raise UnknownFormat(
            f"{paths.FORMAT} says {found[:40]!r}, this version reads {FORMAT_TEXT!r}: "
            "use the version that wrote it"
        )


def cache_is_intact(disk: Disk) -> bool:
    """Tell whether everything the last process wrote is still readable, synced or not."""
    cache_id = disk.page_cache_id()
    if cache_id is None or not disk.exists(paths.RUNNING):
        return False
    return disk.read(paths.RUNNING) == cache_id.encode()


def mark_running(disk: Disk) -> None:
    """Note which page cache this process writes through.

    Without the note a start trusts no cache: one without room for it is no worse than a new one.
    """
    note = (disk.page_cache_id() or "").encode()
    if disk.exists(paths.RUNNING) and disk.read(paths.RUNNING) == note:
        return
    try:
        write_file(disk, paths.RUNNING, note)
    except DiskFull:
        if disk.exists(paths.RUNNING):
            disk.unlink(paths.RUNNING)


def mark_stopped(disk: Disk, *, snapshot_number: int | None) -> None:
    """Note that nobody runs, and since which snapshot nobody has changed a file."""
    if snapshot_number is not None:
        write_file(disk, paths.STOPPED, b"%d\n" % snapshot_number)
    if disk.exists(paths.RUNNING):
        disk.unlink(paths.RUNNING)


def is_as_stopped(disk: Disk, *, snapshot_number: int) -> bool:
    """Tell whether every file is as it was when a snapshot was taken."""
    if disk.exists(paths.RUNNING) or not disk.exists(paths.STOPPED):
        return False
    return disk.read(paths.STOPPED) == b"%d\n" % snapshot_number


def mark_started(disk: Disk) -> None:
    """Note, durably, that files may be changed from here on."""
    if disk.exists(paths.STOPPED):
        disk.unlink(paths.STOPPED)
        disk.sync_dir(paths.META_DIR)


def write_file(disk: Disk, path: str, content: Buffer) -> None:
    """Give a file new content, atomically and durably."""
    temporary = path + paths.TEMPORARY_SUFFIX
    file = disk.create(temporary)
    try:
        file.write_at(0, [content])
        file.sync_data()
    except DiskFull:
        file.close()
        with suppress(DiskFailed):
            disk.unlink(temporary)  # what is of no use takes room
        raise
    file.close()
    disk.rename(temporary, path)
    disk.sync_dir(path.rpartition("/")[0])


def remove_tree(disk: Disk, path: str) -> None:
    """Remove a directory with all it holds, whoever put it there; fine where there is none.

    Somebody may still be writing there, of whose end nobody has heard: then it looks again.
    """
    for left in reversed(range(_REMOVE_TRIES)):
        for name in disk.list(path):
            child = f"{path}/{name}"
            try:
                disk.unlink(child)
            except DiskFailed:  # a directory, or a disk that fails once more below
                remove_tree(disk, child)
        try:
            disk.remove_dir(path)
        except DiskFailed:
            if not left or not disk.list(path):
                raise
        else:
            return
