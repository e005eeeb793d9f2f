"""What a worker of Spark is told once, before its first task."""

import gc
from functools import cache
from typing import Final

from topics.allocator import keep_freed_memory

KEEP_FREED_BYTES: Final = 64 << 20


@cache
def settle_worker() -> None:
    """Keep modules out of each collection, and the memory of one batch for the next.

    Spark collects garbage after every task, and fresh pages cost more than the work on them.
    """
    gc.freeze()
    keep_freed_memory(KEEP_FREED_BYTES)
