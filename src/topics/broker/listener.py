"""The port of the line protocol: bound early, served once the log is open, drained at the end."""

import asyncio
from collections.abc import Callable
from typing import cast

from topics.aio import AsyncLog
from topics.broker.desk import Desk, Keys
from topics.broker.line import NO_ID, Refusal
from topics.broker.session import Session
from topics.clock import Clock
from topics.config import ServerConfig
from topics.descriptors import (
    DEFAULT_CONNECTIONS,
    Crowd,
    descriptor_limit,
    peer_of,
    plan_backlog,
)
from topics.errors import ConfigError, TopicsError

SWEEP_S = 0.25
MAX_CONNECTIONS = 4096
"""Each may hold a line of 1 MiB."""


class _Doorstep(asyncio.Protocol):
    """Meets a connection when every place may be taken, and tells one too many why it has to go."""

    def __init__(self, listener: "BrokerListener") -> None:
        self._listener = listener

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connected = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        session = self._listener.let_in(peer_of(connected))
        if session is not None:
            connected.set_protocol(session)
            session.connection_made(connected)
            return
        why = f"there are {self._listener.count} connections already"
        connected.write(Refusal(NO_ID, "NOT_LEADER", why).format())
        connected.close()


class BrokerListener:
    """One listening port on the running event loop."""

    def __init__(
        self,
        config: ServerConfig,
        keys: Keys,
        *,
        clock: Clock,
        report: Callable[[TopicsError], None],
        crowd: Crowd | None = None,
    ) -> None:
        self._config = config
        self._keys = keys
        self._clock = clock
        self._report = report
        self._desk: Desk | None = None
        self._listener: asyncio.Server | None = None
        self._sessions: set[Session] = set()
        if crowd is None:
            crowd = Crowd(config.max_connections or DEFAULT_CONNECTIONS)
        self._crowd = crowd
        """With the connections of the server beside which it listens, if there is one."""
        self._crowd.add(self._sessions)
        self._sweep: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def port(self) -> int:
        assert self._listener is not None
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    async def listen(self) -> None:
        """Take the port, so that one in use is known at once; nobody is let in yet."""
        config = self._config
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                self._welcome,
                config.host,
                config.broker_port,
                backlog=min(1024, plan_backlog(descriptor_limit())),
                start_serving=False,
            )
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {config.host}:{config.broker_port} (TOPICS_BROKER_PORT): "
                f"{error.strerror or error}"
            ) from error

    async def open(self, log: AsyncLog) -> None:
        """Serve a log that is replayed."""
        assert self._listener is not None
        self._desk = Desk(
            log, self._keys, config=self._config, clock=self._clock, report=self._report
        )
        await self._listener.start_serving()
        self._sweep_once()

    async def close(self) -> None:
        """Let nobody in, answer what was asked, and go."""
        if self._listener is not None:
            self._listener.close()
        for session in list(self._sessions):
            session.drain()
        try:
            await asyncio.wait_for(self._empty.wait(), self._config.drain_ms / 1000)
        except TimeoutError:
            for session in list(self._sessions):
                session.abort()
        if self._sweep is not None:
            self._sweep.cancel()

    def _welcome(self) -> asyncio.Protocol:
        crowded = self._crowd.is_full or len(self._sessions) >= MAX_CONNECTIONS
        return _Doorstep(self) if crowded else self._begin()

    @property
    def count(self) -> int:
        return len(self._crowd)

    def let_in(self, peer: str) -> Session | None:
        """Return a session for one more, if there is a place."""
        has_place = len(self._sessions) < MAX_CONNECTIONS and self._crowd.let_in(peer)
        return self._begin() if has_place else None

    def _begin(self) -> Session:
        assert self._desk is not None
        session = Session(self._desk, on_gone=self._forget)
        self._sessions.add(session)
        self._empty.clear()
        return session

    def _forget(self, session: Session) -> None:
        self._sessions.discard(session)
        if not self._sessions:
            self._empty.set()

    def _sweep_once(self) -> None:
        """Look at every connection once: the only timer of all timeouts."""
        self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep_once)
        now_s = self._clock.monotonic_s()
        for session in list(self._sessions):
            session.check_patience(now_s)
