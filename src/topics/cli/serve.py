"""`topics serve`: the log over HTTP."""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import typer

from topics.cli.keys import KEYS, KEYS_FILE, is_shown, take_keys
from topics.cli.notify import Heartbeat, from_environment
from topics.cli.output_queue import queued_output
from topics.cli.settings import with_settings
from topics.clock import SystemClock
from topics.collector import collect_later, collect_seldom
from topics.config import LoadedConfig, ServerConfig
from topics.descriptors import raise_limit
from topics.errors import ConfigError, TopicsError

if TYPE_CHECKING:
    from topics.api.auth import Keyring
    from topics.api.server import Server


class Beside(Protocol):
    """Something that runs beside the server."""

    def end(self) -> None:
        """Return when it has ended, by force if need be; the server still answers meanwhile."""


@with_settings
def run_serve(loaded: LoadedConfig) -> None:
    """Serve a data directory over HTTP until Ctrl-C or SIGTERM.

    Keys are no flags: TOPICS_API_KEYS=key:scopes:prefixes,… or a file, TOPICS_API_KEYS_FILE.
    """
    serve_until_stopped(loaded.config)


def serve_until_stopped(
    config: ServerConfig, *, beside: "Callable[[Server, Keyring], Beside | None]" = lambda *_: None
) -> None:
    """Serve until Ctrl-C or SIGTERM; what `beside` starts when ready ends with the server."""
    keys = take_keys(os.environ)  # first of all: until then the system shows them
    if is_shown(KEYS):
        typer.echo(
            f"{KEYS} can be read in the environment of this process: use {KEYS_FILE}", err=True
        )
    try:
        from topics.api.auth import parse_keys  # noqa: PLC0415 - an extra: its lack is explained
        from topics.api.server import serve  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"the server is not installed ({missing.name}): "
            "run pip install 'topics-log[server,cli]'"
        ) from missing
    raise_limit()
    keyring = parse_keys(keys)
    notifier = from_environment(os.environ)
    company = _Company()

    def on_listening(server: "Server") -> None:
        server.request_log.count_dropped = lambda: sum(queue.dropped for queue in queues)
        _say_listening(server, config, keyring)
        Heartbeat(notifier, lambda: _replayed_share(server))

    def on_ready(server: "Server") -> None:
        collect_seldom()
        notifier.ready(f"serving {server.app.engine.topic_count} topics on {server.url}")
        _say_ready(server)
        company.add(beside(server, keyring))

    collect_later()
    with queued_output() as queues:
        serving = serve(
            config,
            keyring,
            write_log=lambda line: print(line, end="", file=sys.stderr),
            on_listening=on_listening,
            on_ready=on_ready,
            on_stopping=lambda _: notifier.stopping(),
            see_off=lambda: asyncio.to_thread(company.end),
            add_faces=partial(_add_broker, config, keyring),
        )
        try:
            _run(serving)
        finally:
            company.end()
        typer.echo("stopped cleanly")


class _Company:
    """What runs beside the server, if anything does."""

    def __init__(self) -> None:
        self._members: list[Beside] = []

    def add(self, member: Beside | None) -> None:
        if member is not None:
            self._members.append(member)

    def end(self) -> None:
        for member in self._members:
            member.end()


def _say_listening(server: "Server", config: ServerConfig, keyring: "Keyring") -> None:
    typer.echo(f"topics listens on {server.url}")
    if config.broker_port:
        typer.echo(f"  lines  {config.host}:{config.broker_port}")
    typer.echo(f"  data   {config.data_dir}")
    typer.echo(f"  look   {server.url}/")
    typer.echo(f"  docs   {server.url}/docs")
    if keyring.is_open:
        typer.secho("  auth   OFF: anyone who reaches this port may do anything", bold=True)
    sys.stdout.flush()


def _say_ready(server: "Server") -> None:
    typer.echo(f"ready with {server.app.engine.topic_count} topics; try")
    typer.echo(f"  curl -X POST {server.url}/v0/topics/hello \\")
    typer.echo("    -H 'Content-Type: application/json' -d '{\"records\":[{\"data\":1}]}'")
    sys.stdout.flush()


def _add_broker(config: ServerConfig, keyring: "Keyring", server: "Server") -> None:
    """Let the server speak the line protocol, too, if it has a port."""
    if not config.broker_port:
        return
    from topics.broker.listener import BrokerListener  # noqa: PLC0415 - as the server's

    def report(error: TopicsError) -> None:
        server.request_log.event("line_failed", level="error", code=error.code, message=str(error))

    server.faces.append(
        BrokerListener(config, keyring, clock=SystemClock(), report=report, crowd=server.app.crowd)
    )


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
