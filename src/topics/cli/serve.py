"""`topics serve`: the log over HTTP."""

import asyncio
import os
import sys
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from topics.cli.notify import Heartbeat, from_environment
from topics.cli.settings import with_settings
from topics.clock import SystemClock
from topics.config import LoadedConfig, ServerConfig
from topics.errors import ConfigError, TopicsError

if TYPE_CHECKING:
    from topics.api.auth import Keyring
    from topics.api.server import Server


@with_settings
def run_serve(loaded: LoadedConfig) -> None:
    """Serve a data directory over HTTP until Ctrl-C or SIGTERM.

    Keys come from the environment alone: TOPICS_API_KEYS=key:scopes:prefixes,…
    """
    try:
        from topics.api.auth import parse_keys  # noqa: PLC0415 - an extra: its lack is explained
        from topics.api.server import serve  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"the server is not installed ({missing.name}): run pip install 'topics[server,cli]'"
        ) from missing
    config = loaded.config
    # Taken out of the environment: no child process and no dump of it shows the keys.
    keyring = parse_keys(os.environ.pop("TOPICS_API_KEYS", ""))
    notifier = from_environment(os.environ)

    def on_listening(server: "Server") -> None:
        typer.echo(f"topics listens on {server.url}")
        if config.broker_port:
            typer.echo(f"  lines  {config.host}:{config.broker_port}")
        typer.echo(f"  data   {config.data_dir}")
        typer.echo(f"  look   {server.url}/")
        typer.echo(f"  docs   {server.url}/docs")
        if keyring.is_open:
            typer.secho("  auth   OFF: anyone who reaches this port may do anything", bold=True)
        sys.stdout.flush()
        Heartbeat(notifier, lambda: _replayed_share(server))

    def on_ready(server: "Server") -> None:
        notifier.ready(f"serving {len(server.app.engine.topics())} topics on {server.url}")
        typer.echo(f"ready with {len(server.app.engine.topics())} topics; try")
        typer.echo(f"  curl -X POST {server.url}/v0/topics/hello \\")
        typer.echo("    -H 'Content-Type: application/json' -d '{\"records\":[{\"data\":1}]}'")
        sys.stdout.flush()

    def write_log(line: str) -> None:
        sys.stderr.write(line)
        sys.stderr.flush()

    serving = serve(
        config,
        keyring,
        write_log=write_log,
        on_listening=on_listening,
        on_ready=on_ready,
        on_stopping=lambda _: notifier.stopping(),
        add_faces=partial(_add_broker, config, keyring),
    )
    _run(serving)
    typer.echo("stopped cleanly")


def _add_broker(config: ServerConfig, keyring: "Keyring", server: "Server") -> None:
    """Let the server speak the line protocol, too, if it has a port."""
    if not config.broker_port:
        return
    from topics.broker.listener import BrokerListener  # noqa: PLC0415 - as the server's

    def report(error: TopicsError) -> None:
        server.request_log.event("line_failed", level="error", code=error.code, message=str(error))

    server.faces.append(BrokerListener(config, keyring, clock=SystemClock(), report=report))


def _replayed_share(server: "Server") -> float | None:
    """Return how much of the log is replayed; None once it is served."""
    app = server.app
    return app.replay_progress if app.log is None and not app.stopping else None


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop where it is installed."""
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        asyncio.run(work)
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)
