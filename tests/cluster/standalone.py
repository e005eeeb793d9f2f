"""A standalone cluster from the installed pyspark: a master and two workers on loopback.

Keeps: authentication is on, the master's REST server is off, the secret is in a file that only we
can read, and no process is left behind.
"""

import os
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

HOME = Path(pyspark.__file__).parent
ROOT = Path(__file__).parents[2]
DEADLINE_S = 120.0
WORKERS = 2


class Standalone:
    """A running cluster; `environment` is for drivers that use it.

    Its executors find the package and the tests where we do, unless they are to be `bare`.
    """

    def __init__(self, folder: Path, *, bare: bool = False) -> None:
        self._folder = folder
        self._executor_path = "" if bare else f"{ROOT / 'src'}:{ROOT}"
        self._children: list[subprocess.Popen[bytes]] = []
        self.port = free_port()
        self._write_settings()
        self.environment = {
            **os.environ,
            "SPARK_HOME": str(HOME),
            "SPARK_CONF_DIR": str(folder / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            "TOPICS_SPARK_MASTER": self.master,
        }

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
        self._start("master", [*master, "--port", str(self.port), "--webui-port", "0"])
        self._wait("master", "I have been elected leader")
        for number in range(WORKERS):
            name = f"worker-{number}"
            worker = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1"]
            worker += ["--cores", "1", "--memory", "1g", "--webui-port", "0"]
            self._start(name, [*worker, "--work-dir", str(self._folder / name), self.master])
        for number in range(WORKERS):
            self._wait(f"worker-{number}", "Successfully registered with master")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in reversed(self._children):
            child.terminate()
        for child in self._children:
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def _write_settings(self) -> None:
        conf = self._folder / "conf"
        conf.mkdir(parents=True, mode=0o700)
        settings = conf / "spark-defaults.conf"
        settings.touch(mode=0o600)
        settings.write_text(
            "spark.authenticate true\n"
            f"spark.authenticate.secret {secrets.token_hex(16)}\n"
            "spark.master.rest.enabled false\n"
            "spark.ui.enabled false\n"
            f"spark.executorEnv.PYTHONPATH {self._executor_path}\n"
            "spark.executor.memory 1g\n"
        )

    def _start(self, name: str, command: list[str]) -> None:
        with (self._folder / f"{name}.log").open("wb") as said:
            self._children.append(
                subprocess.Popen(
                    [str(HOME / "bin/spark-class"), *command],
                    env=self.environment,
                    stdout=said,
                    stderr=subprocess.STDOUT,
                )
            )

    def _wait(self, name: str, text: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        log = self._folder / f"{name}.log"
        while text not in log.read_text(errors="replace"):
            said = log.read_text(errors="replace")[-2_000:]
            assert time.monotonic() < deadline, f"{name} did not start: {said}"
            assert all(child.poll() is None for child in self._children), f"{name} ended: {said}"
            time.sleep(0.2)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
