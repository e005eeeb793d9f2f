"""The server's life: listen, replay, serve, drain, close.

It listens before the log is replayed, so that a probe learns how far the replay is.
"""

import asyncio
import contextlib
import ipaddress
import signal
import socket
import threading
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Protocol, cast

from topics.aio import AsyncLog
from topics.api import reasons
from topics.api.app import App
from topics.api.auth import Keyring
from topics.api.connection import STOPPING, Connection
from topics.api.error_response import encode_error
from topics.api.http1 import Http1Connection
from topics.api.log import RequestLog
from topics.api.saved_watches import SavedWatches
from topics.clock import Clock, SystemClock
from topics.collector import Collector, nothing_collected
from topics.config import ServerConfig, wal_shard_count
from topics.descriptors import (
    Crowd,
    descriptor_limit,
    peer_of,
    plan_backlog,
    plan_connections,
)
from topics.errors import Closed, ConfigError, RequestTimeout, TooManyConnections
from topics.storage.disk.data_dir import open_data_dir
from topics.storage.disk.disk import Disk, DiskLock
from topics.storage.disk.local_disk import LocalDisk

SWEEP_S = 0.25
PRESSED_S = 5.0
"""So long who takes nothing of an answer is waited for while too many answers wait."""


class Face(Protocol):
    """Another way to the same log, which lives and ends with the server."""

    async def listen(self) -> None:
        """Take what can be refused, before the log is replayed."""

    async def open(self, log: AsyncLog) -> None: ...

    async def close(self) -> None:
        """Answer what was asked and let go of the log."""


class _Doorstep(asyncio.Protocol):
    """Meets whoever comes when every place is taken."""

    def __init__(self, app: App) -> None:
        self._app = app

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connected = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        crowd = self._app.crowd
        if crowd.let_in(peer_of(connected)):
            connection = Http1Connection(self._app)
            connected.set_protocol(connection)
            connection.connection_made(connected)
            return
        status, body, headers = encode_error(TooManyConnections("max_connections", crowd.most))
        connected.write(
            b"%bContent-Type: application/json\r\nContent-Length: %d\r\n%b%b%b"
            % (reasons.status_line(status), len(body), headers, self._app.closing_line, body)
        )
        connected.close()


class Server:
    """One listening server on the running event loop."""

    def __init__(
        self,
        config: ServerConfig,
        keyring: Keyring,
        *,
        write_log: Callable[[str], None],
        clock: Clock | None = None,
        disk: Disk | None = None,
    ) -> None:
        check_exposure(config, keyring)
        self._disk = disk
        self._lock: DiskLock | None = None
        """Of the directory; the log has it too once it is open."""
        self._clock = clock or SystemClock()
        self.request_log = RequestLog(write_log, self._clock)
        self.app = App(
            config,
            keyring,
            clock=self._clock,
            loop=asyncio.get_running_loop(),
            request_log=self.request_log,
            crowd=Crowd(self._plan_connections(config)),
        )
        self._config = config
        self.faces: list[Face] = []
        self._listener: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._collector = Collector()

    def _plan_connections(self, config: ServerConfig) -> int:
        limit, wanted = descriptor_limit(), config.max_connections
        most = plan_connections(limit, shards=wal_shard_count(config), wanted=wanted)
        if most < wanted:
            self.request_log.event(
                "few_descriptors", level="warning", descriptors=limit, max_connections=most
            )
        return most

    @property
    def port(self) -> int:
        assert self._listener is not None
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        host = self._config.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    async def listen(self) -> None:
        """Take directory and ports, so that one in use is known at once.

        Then take connections; until `open_log` is done they are told to wait.
        """
        loop = self.app.loop
        if self._disk is None:
            self._disk = LocalDisk(self._config.data_dir)
        self._lock = await loop.run_in_executor(None, open_data_dir, self._disk)
        for face in self.faces:
            await face.listen()
        try:
            self._listener = await loop.create_server(
                self._welcome,
                self._config.host,
                self._config.port,
                backlog=plan_backlog(descriptor_limit()),
            )
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {self._config.host}:{self._config.port}: "
                f"{error.strerror or error}"
            ) from error
        if is_loopback(self._config.host):
            send_without_pacing(self._listener)
        self._sweep = loop.call_later(SWEEP_S, self._sweep_once)
        # Slow to import, and the loop would wait for it when the first connection needs it.
        threading.Thread(target=import_module, args=("topics.api.http2",), daemon=True).start()

    def _welcome(self) -> asyncio.Protocol:
        app = self.app
        return _Doorstep(app) if app.crowd.is_full else Http1Connection(app)

    async def open_log(self) -> None:
        """Replay the log, then serve it."""
        app = self.app

        def progress(share: float) -> None:
            if app.stopping:
                raise Closed(STOPPING)  # what a replay leaves half done, the next one does again
            app.replay_progress = share

        with nothing_collected():
            log = await AsyncLog.open(
                config=self._config, disk=self._disk, lock=self._lock, progress=progress
            )
            self._collector.leave_alone(log.log.engine.topic_count)
        saved = SavedWatches(log.log.engine.disk)
        watches = await log.run(saved.load)
        for face in self.faces:  # before this one says that it is ready
            await face.open(log)
        app.open(log)
        await app.watches.restore(saved, watches)
        app.open_early_streams()

    async def stop(self) -> None:
        """Take no more connections, end streams, drain, snapshot."""
        self.app.stopping = True
        if self._listener is not None:
            self._listener.close()
        await asyncio.gather(self.app.drain(), *(face.close() for face in self.faces))
        if self._sweep is not None:
            self._sweep.cancel()
        if self.app.log is not None:
            await self.app.watches.save()
        self.app.aside.close()
        log, self.app.log = self.app.log, None
        try:
            if log is not None:
                await log.close()
        finally:
            if self._lock is not None:
                self._lock.close()

    def _sweep_once(self) -> None:
        """Look at every connection once: the only timer of all timeouts."""
        self._sweep = self.app.loop.call_later(SWEEP_S, self._sweep_once)
        self.app.renew_date()
        if self.app.log is not None:
            self._collector.leave_alone(self.app.engine.topic_count)
        now_s = self._clock.monotonic_s()
        for connection in list(self.app.connections):
            self._check_patience(connection, now_s)

    @property
    def _patience_s(self) -> float:
        """How long who takes nothing is waited for: not long while others could use the room."""
        patience_s = self._config.idle_timeout_ms / 1000
        return min(patience_s, PRESSED_S) if self.app.answers.is_full else patience_s

    def _check_patience(self, connection: Connection, now_s: float) -> None:
        config = self._config
        connection.notice(now_s)
        waited_s = now_s - connection.since_s
        if connection.is_reading_body:
            due_bytes = config.body_min_bytes_per_s * (waited_s - config.head_timeout_ms / 1000)
            if config.body_min_bytes_per_s and connection.received_bytes < due_bytes:
                connection.give_up(RequestTimeout("the body comes too slowly"))
        elif connection.is_reading_head:
            if waited_s > config.head_timeout_ms / 1000 and connection.is_idle:
                connection.give_up(RequestTimeout("the request head did not arrive in time"))
        elif connection.is_stalled and waited_s > self._patience_s:
            connection.give_up(None)


def check_exposure(config: ServerConfig, keyring: Keyring) -> None:
    """Refuse to be open to the network without keys, unless that was asked for by name."""
    if keyring.is_open and not config.allow_insecure_no_auth and not is_loopback(config.host):
        raise ConfigError(
            f"{config.host} can be reached from other machines and TOPICS_API_KEYS is not set: "
            "set keys, listen on 127.0.0.1, or say TOPICS_ALLOW_INSECURE_NO_AUTH=1"
        )


def send_without_pacing(listener: asyncio.Server) -> None:
    """Let connections on this machine take the plainest congestion control: nothing congests there.

    What a system chose for its networks may time every packet. Measured where that is BBR: 64
    connections that write single records, 2 to 6 % more.
    """
    for listening in listener.sockets:
        with contextlib.suppress(OSError):  # then as the system does
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


async def serve(
    config: ServerConfig,
    keyring: Keyring,
    *,
    write_log: Callable[[str], None],
    on_listening: Callable[[Server], None],
    on_ready: Callable[[Server], None],
    on_stopping: Callable[[Server], None] = lambda _: None,
    see_off: Callable[[], Awaitable[None]] | None = None,
    add_faces: Callable[[Server], None] = lambda _: None,
    disk: Disk | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; `see_off` is awaited while requests are still answered."""
    server = Server(config, keyring, write_log=write_log, disk=disk)
    add_faces(server)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    try:
        await server.listen()
        on_listening(server)
        opening = asyncio.ensure_future(server.open_log())
        waiting = asyncio.ensure_future(stopping.wait())
        await asyncio.wait((opening, waiting), return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            server.app.stopping = True
            with contextlib.suppress(Closed):
                await opening
        else:
            await opening
            topics = len(server.app.engine.registry)
            server.request_log.event("ready", url=server.url, topics=topics)
            on_ready(server)
            await waiting
            if see_off is not None:
                await see_off()
        on_stopping(server)
        server.request_log.event("stopping", connections=len(server.app.connections))
    finally:
        await server.stop()
