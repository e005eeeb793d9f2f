"""`topics up`: the server, its console and a local pipeline, in one command and one Ctrl-C.

Keeps: the pipeline is a process of its own that ends with this one, however this one ends: it reads
a pipe of which this process alone holds the other end. Without Java or Spark the server runs alone.
"""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from topics.cli.lake import DEFAULT_LAKE, LakeDir
from topics.cli.serve import serve_until_stopped
from topics.cli.settings import with_settings
from topics.cli.spark import check_installed
from topics.config import LoadedConfig
from topics.errors import ConfigError

if TYPE_CHECKING:
    from topics.api.auth import Keyring
    from topics.api.server import Server

END_DEADLINE_S = 20.0
"""How long the pipeline may take to end a batch; killed, it loses nothing either."""

PipelineFlag = Annotated[
    Path | None,
    typer.Option("--pipeline", metavar="FILE", help="a pipeline file; default: every topic"),
]


@with_settings
def run_up(
    loaded: LoadedConfig, *, lake: LakeDir = DEFAULT_LAKE, pipeline: PipelineFlag = None
) -> None:
    """Run everything: server, console, and a pipeline that writes every topic to a lake.

    Ctrl-C ends all of it. Without Java or Spark the server runs without the pipeline.
    """

    def beside(server: "Server", keyring: "Keyring") -> PipelineProcess | None:
        try:
            check_installed()
            _check_key(keyring)
        except ConfigError as missing:
            typer.secho(f"  no pipeline: {missing}", bold=True)
            sys.stdout.flush()
            return None
        typer.echo(f"  lake   {lake.absolute()} (Spark takes some seconds to start)")
        sys.stdout.flush()
        return PipelineProcess(server.url, lake=lake, file=pipeline)

    serve_until_stopped(loaded.config, beside=beside)


def _check_key(keyring: "Keyring") -> None:
    if not keyring.is_open and not os.environ.get("TOPICS_TOKEN"):
        raise ConfigError("the server has keys: set TOPICS_TOKEN to one of them")


class PipelineProcess:
    """`topics pipeline run` as a child; what it and Spark say goes to a file in the lake."""

    def __init__(self, url: str, *, lake: Path, file: Path | None) -> None:
        command = [sys.executable, "-m", "topics", "pipeline", "run"]
        command += [] if file is None else [str(file.absolute())]
        command += ["--url", url, "--lake", str(lake.absolute()), "--until-eof"]
        lake.mkdir(parents=True, exist_ok=True)
        self._said = lake / "pipeline.log"
        # A session of its own: Ctrl-C on the terminal is for us, and we pass it on in our order.
        with self._said.open("wb") as said:
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=said, stderr=said, start_new_session=True
            )
        self._is_ending = False
        threading.Thread(target=self._watch, name="topics-pipeline", daemon=True).start()

    def end(self) -> None:
        self._is_ending = True
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            self._child.wait(END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _watch(self) -> None:
        code = self._child.wait()
        if not self._is_ending:
            text = f"the pipeline ended with code {code}, the server goes on: see {self._said}"
            typer.secho(text, bold=True)
            sys.stdout.flush()
