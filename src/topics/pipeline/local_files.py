"""The files of this machine, for readers that need no server: the pipeline opens none elsewhere.

Keeps: nothing is created, and a path that this machine lacks is refused with a message that says
on which machine it was looked for.
"""

import socket
from functools import lru_cache
from urllib.parse import unquote, urlsplit

from topics.errors import FileMissing, OptionError
from topics.storage.disk.disk import Buffer
from topics.storage.disk.local_disk import LocalDisk


@lru_cache(maxsize=1)
def _disk() -> LocalDisk:
    return LocalDisk("/", name="/")


def parse_file_uri(uri: str) -> str:
    """Return the path that a `file:` URI means."""
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise OptionError(f"{uri} is not a file of this machine: read with via=http")
    return unquote(parts.path)


def read_file(path: str) -> bytes:
    try:
        return _disk().read(_below_root(path))
    except FileMissing:
        raise OptionError(f"{path} is not there on {socket.gethostname()}") from None


def map_file(path: str) -> Buffer:
    """See a file without reading it; `FileMissing` if it is not there."""
    return _disk().map(_below_root(path))


def file_exists(path: str) -> bool:
    return _disk().exists(_below_root(path))


def list_directory(path: str) -> list[str]:
    return _disk().list(_below_root(path))


def open_directory(path: str) -> LocalDisk:
    """Open a directory that has to be there."""
    check_shared(path)
    return LocalDisk(path, name=f"{path}/")


def check_shared(path: str) -> None:
    """Refuse to go on without a path that the driver has."""
    if not file_exists(path):
        raise OptionError(
            f"{path} is not there on {socket.gethostname()}: name a directory that the driver and "
            "all executors share"
        )


def _below_root(path: str) -> str:
    return path.strip("/")
