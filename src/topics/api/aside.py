"""Work on large bodies beside the event loop: reading records, packing and unpacking.

One thread, one body after the other: what it does lets go of the interpreter, and two of them
would leave the loop no core on a small machine.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from topics.api.connection import STOPPING
from topics.errors import Closed

T = TypeVar("T")
WRITE_BYTES = 8 * 1024 * 1024
"""A batch up to this size is written on the loop: a few ms."""
PACK_BYTES = 64 * 1024
"""An answer up to this size is packed on the loop: under 1 ms."""
UNPACK_BYTES = 8 * 1024
"""A body up to this size, packed, is unpacked on the loop: it makes 800 KiB at most."""


class Aside:
    """Owns the thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="topics-bodies")

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Have something done; it must not touch what the loop does."""
        try:
            return self._loop.run_in_executor(self._pool, work)
        except RuntimeError as error:
            raise Closed(STOPPING) from error

    def close(self) -> None:
        self._pool.shutdown(wait=False)
