"""The contenders: how each is emptied, what a write to it is, and how many records it holds."""

from typing import Protocol

from benchmarks.engine.payloads import body
from benchmarks.server import control, wire
from benchmarks.server.errors import CannotMeasure
from benchmarks.server.load import Load
from benchmarks.server.processes import Peer


class Contender(Protocol):
    """Something that takes writes and says afterwards how many it has."""

    @property
    def name(self) -> str: ...

    def empty(self) -> None: ...

    def write(self, *, batch: int, connections: int) -> Load: ...

    def count(self) -> int | None:
        """Return the records it holds; None when it keeps none or cannot say."""
        ...


class HttpContender:
    """Anything that takes our append request over HTTP and keeps nothing worth counting."""

    def __init__(self, peer: Peer, *, topic: str = wire.STREAM) -> None:
        self.name = peer.name
        self.peer = peer
        self.port = peer.port
        self.pid = peer.pid
        self.topic = topic

    def empty(self) -> None:
        """Keep what is there: there is no route for it, or nothing was kept."""

    def write(self, *, batch: int, connections: int) -> Load:
        return Load(
            port=self.port,
            protocol="http",
            requests=[wire.http_append(self.topic, count=batch)],
            records=batch,
            connections=connections,
        )

    def count(self) -> int | None:
        return None


class AsgiContender(HttpContender):
    """Our append handler on a ready-made ASGI server."""

    def empty(self) -> None:
        control.call(self.port, "DELETE", f"/v0/topics/{self.topic}")


class TopicsContender(HttpContender):
    """The server itself, with a topic of one durability class."""

    def __init__(self, peer: Peer, *, durability: str = "disk", topic: str = "") -> None:
        super().__init__(peer, topic=topic or f"bench-{durability}")
        self.name = f"topics {durability}"
        self._durability = durability

    def empty(self) -> None:
        self.drop()
        self.create()

    def drop(self) -> None:
        control.call(self.port, "DELETE", f"/v0/topics/{self.topic}")

    def create(self, **config: object) -> None:
        settings = {"durability": self._durability, **config}
        control.call(self.port, "PUT", f"/v0/topics/{self.topic}", settings)

    def count(self) -> int | None:
        state = control.call(self.port, "GET", f"/v0/topics/{self.topic}")
        count: int = state["count"]
        return count

    def fill(self, records: int, *, batch: int = 1000) -> None:
        for first in range(0, records, batch):
            content = body(first, count=batch)
            control.call(self.port, "POST", f"/v0/topics/{self.topic}", content)

    def pages(self, *, records: int, limit: int, connections: int) -> Load:
        first = control.call(
            self.port, "POST", f"/v0/topics/{self.topic}/diff", {"from_seq": 0, "limit": limit}
        )
        if len(first["records"]) != limit:
            raise CannotMeasure(f"a page has {len(first['records'])} records, not {limit}")
        return Load(
            port=self.port,
            protocol="http",
            requests=[
                wire.http_diff(self.topic, from_seq=seq, limit=limit)
                for seq in range(0, records, limit)
            ],
            records=limit,
            connections=connections,
        )


class RedisContender:
    """A Redis stream; a batch is a pipeline."""

    def __init__(self, peer: Peer) -> None:
        self.name = peer.name
        self._port = peer.port

    def empty(self) -> None:
        control.redis_call(self._port, "FLUSHALL", "SYNC")

    def write(self, *, batch: int, connections: int) -> Load:
        return self._load([wire.resp_append([b"*"] * batch)], batch, batch, connections)

    def count(self) -> int | None:
        return int(control.redis_call(self._port, "XLEN", wire.STREAM)[1:])

    def fill(self, records: int, *, batch: int = 1000) -> None:
        for first in range(1, records + 1, batch):
            commands = wire.resp_append([b"%d" % seq for seq in range(first, first + batch)])
            control.redis_pipeline(self._port, commands, replies=batch)

    def pages(self, *, records: int, limit: int, connections: int) -> Load:
        requests = [wire.resp_page(first=n + 1, limit=limit) for n in range(0, records, limit)]
        return self._load(requests, limit, 1, connections)

    def _load(self, requests: list[bytes], records: int, replies: int, connections: int) -> Load:
        return Load(
            port=self._port,
            protocol="resp",
            requests=requests,
            records=records,
            replies=replies,
            connections=connections,
        )


class NatsContender:
    """A JetStream stream on files; a batch is that many publishes under way."""

    def __init__(self, peer: Peer) -> None:
        self.name = peer.name
        self._port = peer.port
        config = {"name": wire.STREAM, "subjects": [wire.STREAM], "storage": "file"}
        control.nats_call(peer.port, f"$JS.API.STREAM.CREATE.{wire.STREAM}", config)

    def empty(self) -> None:
        control.nats_call(self._port, f"$JS.API.STREAM.PURGE.{wire.STREAM}", {})

    def write(self, *, batch: int, connections: int) -> Load:
        return Load(
            port=self._port,
            protocol="nats",
            requests=[wire.nats_publish(count=batch)],
            records=batch,
            replies=batch,
            connections=connections,
            setup=wire.NATS_HELLO,
        )

    def count(self) -> int | None:
        info = control.nats_call(self._port, f"$JS.API.STREAM.INFO.{wire.STREAM}", {})
        count: int = info["state"]["messages"]
        return count
