"""Plain writes on their shortest way, over sockets in memory and a real log."""

import asyncio
import gc
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.api.conftest import MakeApp
from tests.unit.api.wire import HeldApp, Wire, answers, connect, post

from topics.aio import AsyncLog
from topics.api import exchange
from topics.engine.partitions import Spread
from topics.engine.queues import claim
from topics.engine.queues.read import read_records
from topics.engine.topics.topic import Topic
from topics.errors import CorruptData, Throttled

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
        self.wait_for(wire, 1)  # the first waits for a sync
        assert statuses(wire) == [200]
        return wire

    def wait_for(self, wire: Wire, count: int) -> None:
        """Go on until so many answers were sent, or the time is over."""
        deadline_s = time.monotonic() + DEADLINE_S
        while wire.sent.count(b"HTTP/1.1") < count and time.monotonic() < deadline_s:
            self.app.turn()

    def break_second(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have the second write of the next turn meet a bug."""
        waiter = self.app.ready_log.waiter_row[0]
        take, calls = waiter.take, iter([True, False, True, True])

        def sometimes(*arguments: Any) -> bool:  # noqa: ANN401 - those of take
            if not next(calls):
                raise ZeroDivisionError
            return take(*arguments)

        monkeypatch.setattr(waiter, "take", sometimes)

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


def test_a_pipeline_that_comes_in_pieces_keeps_its_order(served: Served) -> None:
    wire = served.connect()
    pieces = [
        WRITE,  # queued for the end of the turn
        post("/v0/topics/a?return_seqs=false", BODY),
        post("/v0/topics/a", b'{"records":[{"data":2}],"idempotency_key":"k"}'),
        WRITE + WRITE[:20],
        WRITE[20:],
        post("/v0/topics/b", BODY),  # is made first, and holds up what comes behind it
        WRITE,
    ]
    for piece in pieces:
        ask(wire, piece)
    served.wait_for(wire, 7)
    found = [msgspec.json.decode(answer.body) for answer in answers(wire.take())]
    assert [(answer["topic"], answer["first_seq"]) for answer in found] == [
        *[("a", seq) for seq in range(2, 7)],
        ("b", 1),
        ("a", 7),
    ]


def test_a_write_that_makes_its_topic_holds_up_what_comes_behind_it(served: Served) -> None:
    wire = served.connect()
    make = post("/v0/topics/c", BODY)
    served.app.read_head(make[: -len(BODY)])  # so that it is queued
    ask(wire, make)
    served.app.take_turn()  # at work on a thread; it is told in a later turn
    served.app.hold = True
    ask(wire, post("/v0/topics/a", BODY, b"X-Behind: 1"))
    assert (served.app.held, statuses(wire)) == ([], [])
    served.app.hold = False
    served.wait_for(wire, 2)
    assert statuses(wire) == [201, 200]


def test_who_leaves_before_the_turn_ends_has_written_nothing(served: Served) -> None:
    wires = [served.connect() for _ in range(2)]
    for wire in wires:
        ask(wire, WRITE)
    assert isinstance(wires[0].protocol, asyncio.Protocol)
    wires[0].protocol.connection_lost(None)
    served.app.turn()
    assert statuses(*wires) == [200]
    assert served.app.ready_log.log.state("a").head_seq == 3
    assert served.app.keyring.anonymous.requests == 0


def test_a_half_close_behind_a_queued_write_is_answered(served: Served) -> None:
    wire = served.connect()
    ask(wire, WRITE)
    assert isinstance(wire.protocol, asyncio.Protocol)
    assert wire.protocol.eof_received()
    served.app.turn()
    assert statuses(wire) == [200]
    assert wire.closed


def test_a_bug_in_one_write_of_a_turn_harms_no_other(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    wires = [served.connect() for _ in range(3)]
    served.break_second(monkeypatch)
    for wire in wires:
        ask(wire, WRITE)
    served.app.turn()
    assert [statuses(wire) for wire in wires] == [[200], [500], [200]]
    assert served.app.keyring.anonymous.requests == 0


def test_a_failure_that_cannot_even_be_logged_harms_no_other_write_of_its_turn(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    wires = [served.connect() for _ in range(4)]
    served.app.loop.set_exception_handler(lambda *_: None)

    def broken(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(served.app.request_log, "bug", broken)
    served.break_second(monkeypatch)
    for wire in wires:
        ask(wire, WRITE)
    served.app.turn()
    assert [statuses(wire) for wire in wires] == [[200], [], [200], [200]]
    assert [wire.aborted for wire in wires] == [False, True, False, False]


def test_a_body_that_is_wrong_is_told_so_and_the_others_are_written(served: Served) -> None:
    wires = [served.connect() for _ in range(3)]
    wrong = b'{"records":[{"data":1}}'
    served.app.read_head(post("/v0/topics/a", wrong)[: -len(wrong)])
    for wire, body in zip(wires, (BODY, wrong, BODY), strict=True):
        ask(wire, post("/v0/topics/a", body))
    served.app.turn()
    assert [statuses(wire) for wire in wires] == [[200], [400], [200]]


def test_before_the_log_is_read_a_plain_write_is_told_to_wait(make_app: MakeApp) -> None:
    app = make_app(hold=False)
    _, wire = connect(app)
    for _ in range(3):
        ask(wire, WRITE)
        app.turn()
    assert statuses(wire) == [503] * 3


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
    wires = [served.connect(KEYED) for _ in range(4)]
    tickets = served.app.engine.shards[0].commit.log.counters.batch_tickets
    before = tickets.total
    for wire in wires:
        ask(wire, KEYED)
    served.app.turn()
    assert [statuses(wire) for wire in wires] == [[200], [200], [429], [429]]
    assert tickets.total == before + 1
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
    ask(other, post("/v0/topics/a", BODY, b"X-Held: 1"))
    app.hold = False
    app.parking.park(shard, app.held[0], attempt, size=10)
    ask(wire, WRITE)
    app.turn()
    assert statuses(wire) == []
    full = False
    app.loop.run_until_complete(asyncio.sleep(0.05))
    assert statuses(wire) == [200]
    assert not app.parking.rows
    ask(wire, WRITE)
    assert statuses(wire) == []  # with the others of its turn again
    app.turn()
    assert statuses(wire) == [200]


class Socket:
    """One end of a real socket in the place of a wire's."""

    def __init__(self, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mine, self.peer = socket.socketpair()
        self.mine.settimeout(0)
        self.peer.settimeout(0)
        monkeypatch.setattr(wire.protocol, "descriptor", self.mine.fileno())

    def fill(self) -> None:
        with suppress(BlockingIOError):
            while True:
                self.mine.send(b"x" * 1024)

    def take(self) -> bytes:
        try:
            return self.peer.recv(1 << 20)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        self.mine.close()
        self.peer.close()


@pytest.fixture
def wired(served: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator["Wired"]:
    monkeypatch.setattr(exchange, "PACKETS_MIN", 1)
    wires = [served.connect() for _ in range(3)]
    for wire in wires:
        wire.drain()
    sockets = [Socket(wire, monkeypatch) for wire in wires]
    yield wires, sockets
    for one in sockets:
        one.close()


Wired = tuple[list[Wire], list[Socket]]


def write_on(served: Served, wires: list[Wire]) -> None:
    """Write on all of them, in one turn."""
    for wire in wires:
        ask(wire, WRITE)
    served.app.turn()


def seqs(*sent: bytes) -> list[int]:
    return [
        msgspec.json.decode(answer.body)["first_seq"] for part in sent for answer in answers(part)
    ]


def test_the_answers_of_a_turn_go_straight_to_their_sockets(served: Served, wired: Wired) -> None:
    wires, sockets = wired
    write_on(served, wires)
    assert [wire.take() for wire in wires] == [b"", b"", b""]
    assert seqs(*[one.take() for one in sockets]) == [4, 5, 6]


def test_few_answers_leave_with_the_turn(
    served: Served, wired: Wired, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "PACKETS_MIN", 4)
    wires, sockets = wired
    write_on(served, wires)
    assert [one.take() for one in sockets] == [b"", b"", b""]
    assert seqs(*[wire.take() for wire in wires]) == [4, 5, 6]


def test_what_a_full_socket_does_not_take_goes_behind_what_it_has(
    served: Served, wired: Wired
) -> None:
    wires, sockets = wired
    sockets[1].fill()
    write_on(served, wires)
    assert seqs(sockets[0].take(), wires[1].take(), sockets[2].take()) == [4, 5, 6]
    assert (wires[0].take(), wires[2].take()) == (b"", b"")
    assert set(sockets[1].take()) == set(b"x")


def test_the_rest_of_an_answer_follows_its_beginning(
    served: Served, wired: Wired, monkeypatch: pytest.MonkeyPatch
) -> None:
    wires, _ = wired

    def send_ten(packets: list[tuple[int, bytes]]) -> list[tuple[int, int]]:
        begun.extend(data[:10] for _, data in packets)
        return [(n, 10) for n in range(len(packets))]

    begun: list[bytes] = []
    monkeypatch.setattr("topics.api.exchange.send_each", send_ten)
    write_on(served, wires)
    whole = [start + wire.take() for start, wire in zip(begun, wires, strict=True)]
    assert seqs(*whole) == [4, 5, 6]


def test_an_answer_goes_behind_what_is_still_on_its_way(served: Served, wired: Wired) -> None:
    wires, sockets = wired
    wires[0].write(b"before ")
    ask(wires[0], WRITE)
    served.app.turn()
    assert sockets[0].take() == b""
    assert wires[0].take().startswith(b"before HTTP/1.1 200")


def test_who_was_answered_before_a_failure_hears_of_it(
    served: Served, wired: Wired, monkeypatch: pytest.MonkeyPatch
) -> None:
    wires, sockets = wired

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(wires[1].protocol, "pack_ok", fail)
    with suppress(ZeroDivisionError):
        write_on(served, wires)
    assert seqs(sockets[0].take()) == [4]


def spreads() -> list[Spread]:
    return [found for found in gc.get_objects() if isinstance(found, Spread)]


def test_a_write_to_partitions_leaves_nothing_to_the_garbage_collector(served: Served) -> None:
    log = served.app.ready_log
    served.app.loop.run_until_complete(log.create("p", durability="disk", partitions=3))
    records = b",".join(b'{"data":1,"key":"k%d"}' % n for n in range(20))
    gc.collect()
    gc.disable()
    try:
        served.connect(post("/v0/topics/p", b'{"records":[%b]}' % records))
        deadline_s = time.monotonic() + DEADLINE_S
        while spreads() and time.monotonic() < deadline_s:  # a thread may still hold it
            served.app.turn()
        assert spreads() == []
    finally:
        gc.enable()


# Claims of one turn.


def claim_of(most: int) -> bytes:
    return post("/v0/topics/q/claim", b'{"node":"w","max":%d}' % most)


def queue_of(served: Served, jobs: int, *, data: object = 1) -> None:
    log = served.app.ready_log.log
    log.create("q", type="queue", lease_ms=600_000, durability="disk")
    for _ in range(jobs):
        log.append("q", [{"data": data}])


def in_flight(served: Served) -> int:
    queue = served.app.ready_log.log.state("q").queue
    assert queue is not None
    return queue.in_flight


def counts(served: Served, *wires: Wire) -> list[int]:
    """Return how many jobs each was given, or its status where it was given none for a reason."""
    for wire in wires:
        served.wait_for(wire, 1)
    found = [answers(wire.take())[0] for wire in wires]
    return [
        msgspec.json.decode(answer.body)["count"] if answer.status == 200 else answer.status
        for answer in found
    ]


def test_claims_of_a_turn_are_served_in_order_and_not_to_whoever_left(served: Served) -> None:
    queue_of(served, 4)
    wires = [served.connect() for _ in range(4)]
    for wire, most in zip(wires, (1, 3, 100, 1), strict=True):
        ask(wire, claim_of(most))
    assert isinstance(wires[1].protocol, asyncio.Protocol)
    wires[1].protocol.connection_lost(None)
    assert counts(served, wires[0], wires[2], wires[3]) == [1, 3, 0]
    assert wires[1].take() == b""
    assert in_flight(served) == 4
    assert served.app.keyring.anonymous.requests == 0


def test_each_answer_of_a_turn_keeps_to_its_own_bytes(served: Served) -> None:
    queue_of(served, 20, data="x" * 700_000)
    wires = [served.connect() for _ in range(4)]
    for wire, most in zip(wires, (40, 1, 1, 1), strict=True):
        ask(wire, claim_of(most))
    for wire in wires:
        served.wait_for(wire, 1)
    sizes = [len(answers(wire.take())[0].body) for wire in wires]
    assert 7 << 20 < sizes[0] < 9 << 20
    assert all(0 < size < 1 << 20 for size in sizes[1:])


def test_a_job_that_cannot_be_read_fails_its_own_claim_only(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue_of(served, 3)

    def read(topic: Topic, seqs: Sequence[int], *, verify: bool) -> dict[int, bytes]:
        if 2 in seqs:
            raise CorruptData("bad", segment="s")
        return read_records(topic, seqs, verify=verify)

    monkeypatch.setattr(claim, "read_records", read)
    wires = [served.connect() for _ in range(3)]
    for wire in wires:
        ask(wire, claim_of(1))
    assert counts(served, *wires) == [1, 500, 1]
    assert in_flight(served) == 2


def test_a_claim_finds_what_its_connection_has_written_before_it(served: Served) -> None:
    queue_of(served, 1)
    served.app.ready_log.log.claim("q", node="z")
    first, second = served.connect(), served.connect()
    ask(first, claim_of(1))
    ask(second, post("/v0/topics/q", b'{"records":[{"data":1},{"data":2}]}') + claim_of(1))
    served.wait_for(second, 2)
    _, claimed = [msgspec.json.decode(answer.body) for answer in answers(second.take())]
    assert claimed["count"] == 1


def test_what_was_asked_behind_a_claim_waits_for_it(served: Served) -> None:
    queue_of(served, 2)
    wire = served.connect()
    ask(wire, claim_of(2) + post("/v0/topics/q/ack", b'{"node":"w","seqs":[1,2]}'))
    served.wait_for(wire, 2)
    claimed, acked = [msgspec.json.decode(answer.body) for answer in answers(wire.take())]
    assert (claimed["count"], acked["acked_seqs"]) == (2, [1, 2])


def test_an_answer_that_cannot_be_sent_holds_up_no_other_claim_or_ack(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue_of(served, 4)
    wires = [served.connect() for _ in range(4)]
    failures: list[dict[str, Any]] = []
    served.app.loop.set_exception_handler(lambda _, context: failures.append(context))

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(wires[1].protocol, "send", broken)
    others = [wires[0], wires[2], wires[3]]
    for wire in wires:
        ask(wire, claim_of(1))
    assert counts(served, *others) == [1, 1, 1]
    assert [type(context["exception"]) for context in failures] == [ZeroDivisionError]
    assert wires[1].closed
    for wire, seq in zip(others, (1, 3, 4), strict=True):
        ask(wire, post("/v0/topics/q/ack", b'{"node":"w","seqs":[%d]}' % seq))
        served.wait_for(wire, 1)
    assert statuses(*others) == [200, 200, 200]


def test_a_bug_in_the_claims_of_a_turn_is_told_to_each(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue_of(served, 2)
    wires = [served.connect() for _ in range(2)]

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(served.app.engine, "submit_each_claim", fail)
        for wire in wires:
            ask(wire, claim_of(1))
        assert counts(served, *wires) == [500, 500]
    ask(wires[0], claim_of(1))
    assert counts(served, wires[0]) == [1]
    assert served.app.keyring.anonymous.requests == 0
