"""What the load tests measure with."""

import statistics
from collections.abc import Sequence

from topics.testing.server_process import ServerProcess


def rss_bytes(server: ServerProcess, *, peak: bool = False) -> int:
    """Return the memory of the server, as the kernel counts it; or the most it ever had."""
    field = "VmHWM" if peak else "VmRSS"
    with open(f"/proc/{server.pid}/status", encoding="ascii") as status:  # noqa: PTH123 - procfs
        line = next(line for line in status if line.startswith(field))
    return int(line.split()[1]) * 1024


def median_ms(latencies_s: Sequence[float]) -> float:
    return statistics.median(latencies_s) * 1000


def p99_ms(latencies_s: Sequence[float]) -> float:
    return sorted(latencies_s)[int(len(latencies_s) * 0.99)] * 1000
