"""A server as a child process: started on a free port of loopback, stopped again."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.server.errors import CannotMeasure

START_S = 15.0
STOP_S = 15.0
QUIET_S = 0.1
QUIET_SHARE = 0.2  # of a core, by all of them together
SETTLE_S = 10.0
PROGRAM_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
PACKAGES = {"redis-server": "redis-server", "nats-server": "nats-server", "nginx": "nginx-light"}
BUILT = Path(__file__).parents[2] / "build/peers"
BUILD_S = 300.0


@dataclass(frozen=True)
class Peer:
    """A running server."""

    name: str
    port: int
    pid: int


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def running(
    name: str,
    command: Sequence[str],
    *,
    port: int,
    folder: Path,
    env: Mapping[str, str] | None = None,
) -> Iterator[Peer]:
    """Start a server, wait until it listens, and stop it at the end."""
    log = folder / "output"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, **(env or {})}
        )
    try:
        deadline = time.monotonic() + START_S
        while not listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                said = log.read_text(errors="replace").strip().splitlines()[-1:]
                raise CannotMeasure(f"{name} did not start: {' '.join(said)}")
            time.sleep(0.02)
        yield Peer(name, port, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and its children; 0 when it has gone."""
    process = Path(f"/proc/{pid}")
    try:
        fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
        children = (process / f"task/{pid}/children").read_text().split()
    except OSError:
        return 0.0
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(cpu_seconds(int(child)) for child in children)


def settle(peers: Iterable[Peer]) -> None:
    """Wait until no server still works on what it took before: the next one has the machine."""
    pids = [peer.pid for peer in peers]
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        before = sum(cpu_seconds(pid) for pid in pids)
        time.sleep(QUIET_S)
        if sum(cpu_seconds(pid) for pid in pids) - before <= QUIET_S * QUIET_SHARE:
            return


def program(name: str) -> str:
    """Return the path of a peer's program, installing it when we may."""
    found = shutil.which(name, path=PROGRAM_PATH)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"installing {name} …", file=sys.stderr)
        quiet = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends"]
        subprocess.run([*quiet, PACKAGES[name]], check=False, stdout=subprocess.DEVNULL)
        found = shutil.which(name, path=PROGRAM_PATH)
    if found is None:
        raise CannotMeasure(f"{name} is not installed")
    return found


@cache
def go_program(name: str, module: str) -> str:
    """Return the path of a peer built by Go from this version."""
    place, go = BUILT / module.rpartition("/")[2], shutil.which("go")
    built = place / name
    if go is not None and not built.exists():
        print(f"building {module} …", file=sys.stderr)
        place.mkdir(parents=True, exist_ok=True)
        env = {**os.environ, "GOBIN": str(place)}
        with suppress(subprocess.TimeoutExpired):
            command = [go, "install", module]
            subprocess.run(command, check=False, env=env, stdin=subprocess.DEVNULL, timeout=BUILD_S)
    if not built.exists():
        raise CannotMeasure(f"{module} was not built: {'it failed' if go else 'there is no Go'}")
    return str(built)
