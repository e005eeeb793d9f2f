"""`topics up`: the server, its console and a local pipeline, in one command and one Ctrl-C.

Keeps: the pipeline is a process of its own that ends with this one; one that fails is started
again, and goes on where it was. Without Java or Spark the server runs alone.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from topics.cli.kept_process import KeptProcess
from topics.cli.lake import DEFAULT_LAKE, LakeDir
from topics.cli.serve import serve_until_stopped
from topics.cli.settings import with_settings
from topics.cli.spark import check_installed
from topics.config import LoadedConfig
from topics.errors import ConfigError

if TYPE_CHECKING:
    from topics.api.auth import Keyring
    from topics.api.server import Server

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

    def beside(server: "Server", keyring: "Keyring") -> KeptProcess | None:
        try:
            check_installed()
            _check_key(keyring)
        except ConfigError as missing:
            typer.secho(f"  no pipeline: {missing}", bold=True)
            sys.stdout.flush()
            return None
        typer.echo(f"  lake   {lake.absolute()} (Spark takes some seconds to start)")
        sys.stdout.flush()
        return _start_pipeline(server.url, lake=lake, file=pipeline)

    serve_until_stopped(loaded.config, beside=beside)


def _check_key(keyring: "Keyring") -> None:
    if not keyring.is_open and not os.environ.get("TOPICS_TOKEN"):
        raise ConfigError("the server has keys: set TOPICS_TOKEN to one of them")


def _start_pipeline(url: str, *, lake: Path, file: Path | None) -> KeptProcess:
    """Run `topics pipeline run` as a child; what it and Spark say goes to a file in the lake."""
    command = [sys.executable, "-m", "topics", "pipeline", "run"]
    command += [] if file is None else [str(file.absolute())]
    command += ["--url", url, "--lake", str(lake.absolute()), "--until-eof"]
    lake.mkdir(parents=True, exist_ok=True)
    return KeptProcess(command, lake / "pipeline.log", tell=_tell)


def _tell(text: str) -> None:
    typer.secho(f"the server goes on, the pipeline {text}", bold=True)
    sys.stdout.flush()
