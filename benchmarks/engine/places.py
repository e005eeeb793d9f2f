"""Where a measurement keeps its files: in the working directory, on a real disk, gone after."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def data_dir() -> Iterator[str]:
    path = tempfile.mkdtemp(prefix="bench-", dir=Path.cwd())
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
