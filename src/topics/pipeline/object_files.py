"""Files of an object store, for readers that need no server: a copy of a data or cold directory.

Keeps: nothing is created. Keys come from where the store's own tools look (the environment, a
profile, the machine's role), never from the URI. Reference: docs/reference/spark.md.
"""

from functools import lru_cache

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType

from topics.errors import DiskFailed, FileMissing, OptionError


class ObjectDisk:
    """What lies below one URI, `s3://bucket/prefix`; settings of the store may follow a `?`."""

    def __init__(self, uri: str) -> None:
        self._uri, question, settings = uri.partition("?")
        self._settings = question + settings
        self._files, self._root = _open(uri)

    def read(self, path: str) -> bytes:
        return bytes(self.map(path))

    def map(self, path: str) -> memoryview:
        """Return a whole file; it is fetched, not followed."""
        try:
            with self._files.open_input_file(f"{self._root}/{path}") as file:
                return memoryview(file.read_buffer())
        except FileNotFoundError:
            raise FileMissing(f"{self._uri}/{path} is not there") from None
        except (OSError, pa.ArrowException) as error:
            raise DiskFailed(f"{self._uri}/{path}: {error}") from None

    def exists(self, path: str) -> bool:
        (found,) = self._look([f"{self._root}/{path}"])
        return bool(found.type != FileType.NotFound)

    def location(self, path: str) -> str:
        return f"{self._uri}/{path}{self._settings}"

    def _look(self, wanted: "list[str] | FileSelector") -> "list[FileInfo]":
        try:
            found: list[FileInfo] = self._files.get_file_info(wanted)
        except (OSError, pa.ArrowException) as error:
            raise DiskFailed(f"{self._uri}: {error}") from None
        return found

    def list(self, path: str) -> list[str]:
        """Return the sorted names there, [] where there is nothing."""
        below = FileSelector(f"{self._root}/{path}", allow_not_found=True)
        return sorted(found.base_name for found in self._look(below))


def map_object(uri: str) -> memoryview:
    """Fetch one file by its URI."""
    where, question, settings = uri.partition("?")
    directory, _, name = where.rpartition("/")
    return ObjectDisk(directory + question + settings).map(name)


@lru_cache(maxsize=64)
def _open(uri: str) -> tuple[FileSystem, str]:
    try:
        files, root = FileSystem.from_uri(uri)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise OptionError(f"{uri} cannot be opened: {error}") from None
    return files, root.rstrip("/")
