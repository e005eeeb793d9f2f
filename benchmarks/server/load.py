"""The tools in C: compiled into a folder of their own, and run as child processes."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.server.errors import CannotMeasure
from benchmarks.server.processes import Peer

HERE = Path(__file__).parent
COMPILERS = ("cc", "gcc", "clang")
SPARE_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Load:
    """What one contender is asked: these bytes, over so many connections, so many at a time."""

    port: int
    protocol: str
    requests: Sequence[bytes]
    records: int  # in one request
    connections: int
    depth: int = 1
    replies: int = 1  # until a request is answered
    setup: bytes = b""
    fill: bool = False


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver prints: requests a second, latency, errors, its own share of a core."""

    rate: float
    p50_us: float
    p99_us: float
    errors: int
    cpu: float
    first_error: str


class Deliveries(msgspec.Struct, frozen=True, kw_only=True):
    """What the watching client prints; `cpu_s` is what the server spent meanwhile."""

    sent: int
    delivered: int
    p50_us: float
    p99_us: float
    cpu_s: float


def compiler() -> str | None:
    return next((found for name in COMPILERS if (found := shutil.which(name))), None)


class Tools:
    """The compiled programs and the folder their request files are in."""

    def __init__(self, folder: Path) -> None:
        found = compiler()
        if found is None:
            raise CannotMeasure("no C compiler: the load driver is written in C")
        self._folder = folder
        for name in ("driver", "watchers", "epoll"):
            source, program = HERE / f"{name}.c", folder / name
            flags = ["-O2", "-Wall", "-D_GNU_SOURCE", "-o", str(program)]
            subprocess.run([found, *flags, str(source)], check=True)

    def path(self, name: str) -> str:
        return str(self._folder / name)

    def write(self, name: str, content: bytes) -> str:
        path = self._folder / name
        path.write_bytes(content)
        return str(path)

    def drive(self, load: Load, *, seconds: float, warmup: float) -> Figures:
        """Run the load, and refuse figures of a run with errors in it."""
        files = [self.write(f"request-{n}", bytes_) for n, bytes_ in enumerate(load.requests)]
        arguments = {
            "protocol": load.protocol,
            "port": load.port,
            "connections": load.connections,
            "depth": load.depth,
            "replies": load.replies,
            "seconds": seconds,
            "warmup": warmup,
            "fill": int(load.fill),
        }
        command = [self.path("driver"), *(f"{key}={value}" for key, value in arguments.items())]
        if load.setup:
            command.append(f"setup={self.write('setup', load.setup)}")
        command += [f"request={file}" for file in files]
        figures = msgspec.json.decode(run_tool(command, seconds + warmup), type=Figures)
        if figures.errors or not figures.rate:
            answer = figures.first_error or "nothing"
            raise CannotMeasure(f"{figures.errors} requests failed, the first with: {answer}")
        return figures

    def watch(
        self, peer: Peer, *, paths: Sequence[str], topic: str, rate: float, seconds: float
    ) -> Deliveries:
        """Open a stream for each path, append at this rate, and measure when it arrives."""
        listing = self.write("paths", "\n".join(paths).encode())
        command = [self.path("watchers"), str(peer.port), str(peer.pid), listing, topic]
        command += [str(rate), str(seconds)]
        found = msgspec.json.decode(run_tool(command, seconds), type=Deliveries)
        if found.delivered != found.sent * len(paths):
            wanted = found.sent * len(paths)
            raise CannotMeasure(f"{found.delivered} of {wanted} deliveries came")
        return found


def run_tool(command: Sequence[str], seconds: float) -> bytes:
    try:
        done = subprocess.run(command, check=False, capture_output=True, timeout=seconds + SPARE_S)
    except subprocess.TimeoutExpired as error:
        raise CannotMeasure(f"no answer within {error.timeout:.0f} s") from error
    if done.returncode:
        raise CannotMeasure(done.stderr.decode().strip() or f"ended with {done.returncode}")
    return done.stdout


def fixed_reply() -> bytes:
    """Return a reply as long as that of a single append, for servers that do nothing else."""
    answer = {
        "topic": "bench",
        "first_seq": 1_000_000,
        "last_seq": 1_000_000,
        "seqs": [1_000_000],
        "head_seq": 1_000_000,
        "count": 1,
        "created": False,
        "deduped": False,
        "performance": {"server_total_ms": 0.012, "wal_append_ms": 0.004, "fsync_ms": 0.0},
    }
    return json.dumps(answer, separators=(",", ":")).encode()
