"""Spark Connect as the page says: a server of the cluster on loopback, a write and a read by it.

What `topics-log[connect]` brings beside `topics-log[spark]` is installed for the time of this run
where it is missing.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path

from tests.cluster.lines import MASTER, block, here, last_words, run_lines, server_with_key
from tests.cluster.standalone import Standalone, free_port

START_S = 180.0
PORT = "15002"


def check_connect(folder: Path) -> str:
    """Write and read through a Connect server; return what was seen."""
    with server_with_key(folder) as (_, places), Standalone(folder / "cluster") as cluster:
        environment = _with_connect(cluster.environment, folder)
        port = str(free_port())
        with _connect_server(folder, cluster, environment, port):
            script = here(block("py", "sc://"), places | {PORT: port})
            (folder / "main.py").write_text(script)
            code, said = run_lines("python main.py", folder, environment)
    assert (code, said.split()) == (0, ["2", "skus"]), said + last_words(folder)
    return "2 records written and read through sc://"


def _with_connect(environment: dict[str, str], folder: Path) -> dict[str, str]:
    if find_spec("grpc_status") is not None:
        return environment
    extra = 'extra == "connect"'
    needed = [text.partition(";")[0] for text in requires("pyspark") or () if extra in text]
    missing = [text for text in needed if not text.startswith(("pandas", "pyarrow", "numpy"))]
    target = folder / "connect"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target)]
    subprocess.run([*command, *missing], check=True)
    return {**environment, "PYTHONPATH": f"{environment['PYTHONPATH']}:{target}"}


@contextmanager
def _connect_server(
    folder: Path, cluster: Standalone, environment: dict[str, str], port: str
) -> Iterator[None]:
    lines = here(block("sh", "start-connect-server.sh"), {MASTER: cluster.master, PORT: port})
    log = folder / "connect.log"
    with log.open("wb") as said:
        child = subprocess.Popen(
            ["bash", "-euc", lines],
            env=environment,
            cwd=folder,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_S
        while "Spark Connect server started" not in log.read_text(errors="replace"):
            assert child.poll() is None, log.read_text(errors="replace")[-2_000:]
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-2_000:]
            time.sleep(0.2)
        yield
    finally:
        os.killpg(child.pid, signal.SIGTERM)
        child.wait(60)
