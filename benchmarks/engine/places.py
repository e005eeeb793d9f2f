"""Where a measurement keeps its files: in the working directory, on a real disk, gone after.

A file system may look at every file that was removed lately before it makes a new one (ext4 without
a journal, for five minutes): the next measurement would pay for the one before. So files are only
emptied at first, and removed when the process ends.
"""

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def data_dir() -> Iterator[str]:
    path = tempfile.mkdtemp(prefix="bench-", dir=Path.cwd())
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    try:
        yield path
    finally:
        for file in Path(path).rglob("*"):
            if file.is_file():
                file.write_bytes(b"")
