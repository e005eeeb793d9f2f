"""A real power cut without pulling a plug: an ext4 image, loop-mounted, shut down by the kernel.

`FS_IOC_SHUTDOWN` without a flush of the journal drops everything that was not synced; later writes
get EIO; the next mount replays the journal. Needs root and a loop device: `why_not` says what is
missing.
"""

import fcntl
import os
import shutil
import struct
import subprocess
from contextlib import suppress
from typing import Final

from topics.closing import Closing

IMAGE_BYTES: Final = 256 << 20
FS_IOC_SHUTDOWN: Final = 0x8004587D
WITHOUT_JOURNAL_FLUSH: Final = 2


def why_not() -> str | None:
    """Say why this machine cannot cut power this way, None where it can."""
    if os.geteuid() != 0:
        return "mounting an image needs root"
    if not os.path.exists("/dev/loop-control"):  # noqa: PTH110 - the one question about a device
        return "this machine has no loop devices"
    missing = [tool for tool in ("mkfs.ext4", "mount", "umount") if shutil.which(tool) is None]
    return f"{', '.join(missing)} not found" if missing else None


class PowerImage(Closing):
    """Owns one image file and its mount; as a context manager it always cleans up."""

    def __init__(self, directory: str, *, has_journal: bool = True) -> None:
        self._image = f"{directory}/disk.img"
        self.root = f"{directory}/mounted"
        os.mkdir(self.root)  # noqa: PTH102 - plain strings as everywhere here
        with open(self._image, "wb") as image:  # noqa: PTH123
            image.truncate(IMAGE_BYTES)
        features = "has_journal" if has_journal else "^has_journal"
        _run("mkfs.ext4", "-q", "-F", "-O", features, self._image)
        self._mounted = False

    def mount(self) -> None:
        _run("mount", "-o", "loop", self._image, self.root)
        self._mounted = True

    def cut_power(self) -> None:
        """Drop everything that is not synced; the file system answers EIO from here on."""
        fd = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, FS_IOC_SHUTDOWN, struct.pack("I", WITHOUT_JOURNAL_FLUSH))
        finally:
            os.close(fd)

    def lose_memory(self) -> None:
        """Mount again with nothing but what has reached the device until now.

        Without a journal only this shows it: `cut_power` does not keep such a file system from
        writing what it still has in memory.
        """
        kept = f"{self._image}.kept"
        shutil.copyfile(self._image, kept)
        self.unmount()
        os.replace(kept, self._image)  # noqa: PTH105
        self.mount()

    def unmount(self) -> None:
        if self._mounted:
            _run("umount", self.root)
            self._mounted = False

    def close(self) -> None:
        """Clean up, whatever is mounted."""
        if self._mounted:
            with suppress(subprocess.CalledProcessError):
                _run("umount", "--lazy", self.root)
            self._mounted = False
        with suppress(OSError):
            os.unlink(self._image)  # noqa: PTH108


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
