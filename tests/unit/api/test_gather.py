"""Plain writes on their shortest way, over sockets in memory and a real log."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.unit.api.conftest import MakeApp
from tests.unit.api.wire import HeldApp, Wire, answers, connect, post

from topics.aio import AsyncLog
from topics.errors import Throttled

DEADLINE_S = 10.0
BODY = b'{"records":[{"data":1}]}'
WRITE = post("/v0/topics/a", BODY)
KEYED = post("/v0/topics/a", BODY, b"Authorization: Bearer k")


class Served:
    """An app with an open log and a topic `a`."""

    def __init__(self, app: HeldApp, path: Path) -> None:
        self.app = app
        app.loop.run_until_complete(self._open(path))

    async def _open(self, path: Path) -> None:
        log = await AsyncLog.open(str(path), wal_shards=1, wal_file_bytes=1 << 20)
        self.app.open(log)
        await log.create("a", durability="disk")

    def connect(self, write: bytes = WRITE) -> Wire:
        """Return a wire on which one write was answered: its head is remembered from now on."""
        connection, wire = connect(self.app)
        connection.data_received(write)
        deadline_s = time.monotonic() + DEADLINE_S
        while not wire.sent and time.monotonic() < deadline_s:  # the first waits for a sync
            self.app.turn()
        assert statuses(wire) == [200]
        return wire

    def close(self) -> None:
        async def close() -> None:
            for stop in self.app.on_stop:
                stop()
            await self.app.ready_log.close()

        self.app.loop.run_until_complete(close())


def ask(wire: Wire, request: bytes) -> None:
    assert isinstance(wire.protocol, asyncio.Protocol)
    wire.protocol.data_received(request)


def statuses(*wires: Wire) -> list[int]:
    return [answer.status for wire in wires for answer in answers(wire.take())]


@pytest.fixture
def served(make_app: MakeApp, tmp_path: Path) -> Iterator[Served]:
    one = Served(make_app(hold=False), tmp_path)
    yield one
    one.close()


def test_plain_writes_of_a_turn_are_one_ticket(served: Served) -> None:
    wires = [served.connect() for _ in range(3)]
    tickets = served.app.engine.shards[0].commit.log.counters.batch_tickets
    before = tickets.total
    for wire in wires:
        ask(wire, WRITE)
    assert statuses(*wires) == []
    served.app.turn()
    found = [msgspec.json.decode(answers(wire.take())[0].body) for wire in wires]
    assert [answer["first_seq"] for answer in found] == [4, 5, 6]
    assert tickets.total == before + 1


def test_heads_of_other_lengths_on_one_connection_are_told_apart(served: Served) -> None:
    wire = served.connect()
    blank_lines = b'{"records":[{"data":"x"}],\r\n\r\n"node":"n"}'
    for body in (BODY, blank_lines, b'{"records":[{"data":12345678901234567890}]}', BODY):
        ask(wire, post("/v0/topics/a", body))
        served.app.turn()
        ask(wire, post("/v0/topics/a", body, b"X-Other: 1"))
        served.app.turn()
    assert statuses(wire) == [200] * 8
    page = served.app.ready_log.log.diff("a", from_seq=0)
    assert [record.data for record in page.records] == [
        1,
        1,
        1,
        "x",
        "x",
        *[12345678901234567890] * 2,
        1,
        1,
    ]


def test_a_key_has_so_many_plain_writes_at_a_time(make_app: MakeApp, tmp_path: Path) -> None:
    served = Served(make_app(hold=False, keys="k", max_inflight_per_key=2), tmp_path)
    served.connect(KEYED)
    wires = [connect(served.app)[1] for _ in range(3)]
    for wire in wires:
        ask(wire, KEYED)
    served.app.turn()
    assert [statuses(wire) for wire in wires] == [[200], [200], [429]]
    ask(wires[2], KEYED)
    served.app.turn()
    assert statuses(wires[2]) == [200]
    served.close()


def test_whoever_needs_no_key_has_no_such_bound(make_app: MakeApp, tmp_path: Path) -> None:
    served = Served(make_app(hold=False, max_inflight_per_key=1), tmp_path)
    wires = [served.connect() for _ in range(3)]
    tickets = served.app.engine.shards[0].commit.log.counters.batch_tickets
    before = tickets.total
    for wire in wires:
        ask(wire, WRITE)
    served.app.turn()
    assert statuses(*wires) == [200] * 3
    assert tickets.total == before + 1
    served.close()


def test_a_server_that_stops_takes_no_plain_write(served: Served) -> None:
    wire = served.connect()
    served.app.stopping = True
    ask(wire, WRITE)
    served.app.turn()
    assert statuses(wire) == [503]


def test_a_coding_that_is_not_known_is_refused_even_if_the_body_could_be_read(
    served: Served,
) -> None:
    wire = served.connect()
    for _ in range(2):
        ask(wire, post("/v0/topics/a", BODY, b"Content-Encoding: br"))
    served.app.turn()
    assert statuses(wire) == [415] * 2


def test_a_plain_write_waits_behind_one_that_waits_for_room(served: Served) -> None:
    app, full = served.app, True
    wire, other = served.connect(), served.connect()
    shard = app.engine.shards[0]

    def attempt(_waited_ms: float) -> None:
        if full:
            raise Throttled(1)

    app.hold = True
    ask(other, WRITE)
    app.hold = False
    app.parking.park(shard, app.held[0], attempt, size=10)
    ask(wire, WRITE)
    app.turn()
    assert statuses(wire) == []
    full = False
    app.loop.run_until_complete(asyncio.sleep(0.05))
    assert statuses(wire) == [200]
    assert app.parking.is_empty
    ask(wire, WRITE)
    assert statuses(wire) == []  # with the others of its turn again
    app.turn()
    assert statuses(wire) == [200]
