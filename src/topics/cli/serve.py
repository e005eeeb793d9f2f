"""`topics serve`: the log over HTTP."""

import asyncio
import os
import sys
from collections.abc import Coroutine
from typing import Any

import typer

from topics.cli.settings import with_settings
from topics.config import LoadedConfig
from topics.errors import ConfigError


@with_settings
def run_serve(loaded: LoadedConfig) -> None:
    """Serve a data directory over HTTP until Ctrl-C or SIGTERM.

    Keys come from the environment alone: TOPICS_API_KEYS=key:scopes:prefixes,…
    """
    try:
        from topics.api.auth import parse_keys  # noqa: PLC0415 - an extra: its lack is explained
        from topics.api.server import Server, serve  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"the server is not installed ({missing.name}): run pip install 'topics[server,cli]'"
        ) from missing
    config = loaded.config
    # Taken out of the environment: no child process and no dump of it shows the keys.
    keyring = parse_keys(os.environ.pop("TOPICS_API_KEYS", ""))

    def on_listening(server: Server) -> None:
        typer.echo(f"topics listens on {server.url}")
        typer.echo(f"  data   {config.data_dir}")
        typer.echo(f"  look   {server.url}/")
        typer.echo(f"  docs   {server.url}/docs")
        if keyring.is_open:
            typer.secho("  auth   OFF: anyone who reaches this port may do anything", bold=True)
        sys.stdout.flush()

    def on_ready(server: Server) -> None:
        typer.echo(f"ready with {len(server.app.engine.topics())} topics; try")
        typer.echo(f"  curl -X POST {server.url}/v0/topics/hello \\")
        typer.echo("    -H 'Content-Type: application/json' -d '{\"records\":[{\"data\":1}]}'")
        sys.stdout.flush()

    def write_log(line: str) -> None:
        sys.stderr.write(line)
        sys.stderr.flush()

    _run(serve(config, keyring, write_log=write_log, on_listening=on_listening, on_ready=on_ready))
    typer.echo("stopped cleanly")


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop where it is installed."""
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        asyncio.run(work)
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)
