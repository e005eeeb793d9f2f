"""Connections that repeat plain writes, over real sockets: the same answers, by a shorter way."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop
from tests.unit.api.streaming import Place, serving, until, within
from tests.unit.api.wire import HEALTH, post

from topics.api.http1 import REGULAR_AFTER, Http1Connection
from topics.api.regulars import Regulars
from topics.errors import ShardReadOnly, Throttled
from topics.storage.wal.group_commit import GroupCommit

BODY = b'{"records":[{"data":"x"}]}'
WRITE = post("/v0/topics/t", BODY)
LARGE = post("/v0/topics/t", b'{"records":[{"data":"%b"}]}' % (b"y" * 200_000))
BAD = post("/v0/topics/t", b'{"records":[{"tag":"no data"}]}')
CLOSING = post("/v0/topics/t", BODY, b"Connection: close")
MANY = post("/v0/topics/t", b'{"records":[%b]}' % b",".join([b'{"data":0}'] * 200))


LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
Run = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    """Run a scenario on each event loop: they keep what is to be sent in different ways."""

    def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(scenario())

    return run


class Line:
    """One connection that asks, and reads its answers strictly."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.head = b""

    async def answer(self) -> tuple[int, Any]:
        self.head = await within(self.reader.readuntil(b"\r\n\r\n"))
        size = int(self.head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        body = await within(self.reader.readexactly(size))
        return int(self.head.split(b" ")[1]), msgspec.json.decode(body)

    async def ask(self, request: bytes) -> tuple[int, Any]:
        self.writer.write(request)
        return await self.answer()

    async def write(self, request: bytes = WRITE) -> int:
        """Write once; return the seq."""
        status, answer = await self.ask(request)
        assert status == 200, answer
        seq: int = answer["first_seq"]
        return seq

    def reset(self) -> None:
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def is_closed(self) -> bool:
        rest: bytes = await within(self.reader.read())
        return rest == b""


class Inn(Place):
    """A server, and lines to it."""

    async def connect(self, *, rcvbuf: int = 0) -> Line:
        reader, writer = await self._connect(rcvbuf)
        self.writers.append(writer)
        return Line(reader, writer)

    async def regular(self, request: bytes = WRITE) -> Line:
        """Return a line that has become a regular."""
        line, before = await self.connect(), self.count
        for _ in range(REGULAR_AFTER + 4):
            await line.write(request)
        assert self.count == before + 1
        return line

    async def served(self) -> tuple[Line, Http1Connection]:
        """Return a new line with the server's end of it."""
        before = set(self.app.connections)
        line = await self.connect()
        await until(lambda: len(self.app.connections) > len(before))
        (connection,) = self.app.connections - before
        assert isinstance(connection, Http1Connection)
        return line, connection

    def bugs(self) -> list[type]:
        """Return where the kind of each error that nobody handled is noted from now on."""
        seen: list[type] = []
        self.app.loop.set_exception_handler(lambda _, found: seen.append(type(found["exception"])))
        return seen

    @property
    def regulars(self) -> Regulars:
        return self.app.regulars

    @property
    def count(self) -> int:
        return len(self.regulars)

    async def data(self, topic: str = "t") -> list[Any]:
        page = await self.app.ready_log.diff(topic, from_seq=0, limit=1000)
        assert page.caught_up
        return [record.data for record in page.records]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the disk for a quick one, however busy the machine is."""
    monkeypatch.setattr(GroupCommit, "is_quick", property(lambda _: True))


@asynccontextmanager
async def inn(path: Path, *, durability: str = "disk", **settings: Any) -> AsyncIterator[Inn]:  # noqa: ANN401 - any setting
    async with serving(path, **settings) as place:
        found = Inn(place.server)
        await found.app.ready_log.create("t", durability=durability)
        yield found
        for writer in found.writers:
            with suppress(OSError):
                writer.close()


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_a_regular_is_answered_as_anybody_is(tmp_path: Path, run: Run, durability: str) -> None:
    async def scenario() -> None:
        async with inn(tmp_path, durability=durability) as place:
            line, stranger = await place.regular(), await place.connect()
            _, first = await line.ask(WRITE)
            usual, _, _ = line.head.partition(b"Date")
            _, second = await stranger.ask(WRITE)
            assert stranger.head.partition(b"Date")[0] == usual
            assert list(first) == list(second)
            assert list(first["performance"]) == list(second["performance"])
            assert (first["performance"]["fsync_ms"] > 0) == (durability == "fsync")
            assert second["first_seq"] == first["last_seq"] + 1
            assert first["seqs"] == [first["first_seq"]]
            assert first["count"] == 1
            assert await place.data() == ["x"] * second["head_seq"]

    run(scenario)


def test_all_regulars_of_a_turn_get_their_own_seqs(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            lines = [await place.regular() for _ in range(20)]
            told: list[int] = []
            for _ in range(10):
                told += await asyncio.gather(*(line.write() for line in lines))
            assert place.count == 20
            before = 20 * (REGULAR_AFTER + 4)
            assert sorted(told) == list(range(before + 1, before + 201))
            assert len(await place.data()) == before + 200

    run(scenario)


def test_regulars_of_several_topics_share_a_turn(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            for name in "abc":
                await place.app.ready_log.create(name, durability="disk")
            lines = {
                name: await place.regular(
                    post(f"/v0/topics/{name}", b'{"records":[{"data":"%b"}]}' % name.encode())
                )
                for name in "abct"
            }
            for name, line in lines.items():
                line.writer.write(
                    post(f"/v0/topics/{name}", b'{"records":[{"data":"%b"}]}' % name.encode())
                )
            for name, line in lines.items():
                _, answer = await line.answer()
                assert answer["topic"] == name
            for name in "abct":
                assert set(await place.data(name)) == {name}

    run(scenario)


@pytest.mark.parametrize(
    ("request_", "status"), [(HEALTH, 200), (BAD, 400), (LARGE, 200), (MANY, 200)]
)
def test_whatever_else_a_regular_asks_is_answered(
    tmp_path: Path, run: Run, request_: bytes, status: int
) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            line = await place.regular()
            for _ in range(3):
                assert (await line.ask(request_))[0] == status
                await line.write()

    run(scenario)


def test_a_regular_that_pipelines_is_answered_in_order(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            line = await place.regular()
            line.writer.write(WRITE + HEALTH + WRITE * 3 + BAD + WRITE)
            found = [await line.answer() for _ in range(7)]
            assert [status for status, _ in found] == [200, 200, 200, 200, 200, 400, 200]
            seqs = [answer["first_seq"] for _, answer in found if "first_seq" in answer]
            assert seqs == list(range(seqs[0], seqs[0] + 5))

    run(scenario)


def test_a_request_that_comes_in_pieces_is_put_together(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            line = await place.regular()
            line.writer.write(WRITE[:-5])
            await until(lambda: place.count == 0)
            line.writer.write(WRITE[-5:])
            assert (await line.answer())[0] == 200

    run(scenario)


def test_a_regular_that_ends_is_answered_and_closed(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            line = await place.regular()
            line.writer.write(WRITE)
            line.writer.write_eof()
            assert (await line.answer())[0] == 200
            assert await line.is_closed()
            for _ in range(2):  # with a head that is new, and one that is known
                other = await place.regular()
                await other.ask(CLOSING)
                assert await other.is_closed()
            await until(lambda: not place.app.connections)
            assert place.count == 0

    run(scenario)


def test_a_regular_that_resets_is_forgotten(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            lines = [await place.regular() for _ in range(3)]
            lines[1].reset()
            await until(lambda: len(place.app.connections) == 2)
            assert place.count == 2
            for line in (lines[0], lines[2], await place.regular()):
                await line.write()

    run(scenario)


def test_a_regular_may_become_a_stream(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            line = await place.regular()
            url = await place.watch({"t": {"tail": True}})
            line.writer.write(
                b"GET %b HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
                % url.encode()
            )
            await within(line.reader.readuntil(b"retry: 2000"))
            assert place.count == 0
            await place.append("t", "news")
            await within(line.reader.readuntil(b'"news"'))

    run(scenario)


def test_a_refused_write_is_told_to_each(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            lines = [await place.regular() for _ in range(4)]
            count = len(await place.data())

            def refuse(*_: object, **__: object) -> None:
                raise ShardReadOnly("no")

            with monkeypatch.context() as patch:
                patch.setattr(place.app.engine, "submit_append", refuse)
                found = await asyncio.gather(*(line.ask(WRITE) for line in lines))
            assert [status for status, _ in found] == [503] * 4
            assert place.app.keyring.anonymous.requests == 0
            for line in lines:
                await line.write()
            assert len(await place.data()) == count + 4

    run(scenario)


def test_writes_that_find_no_room_wait_for_it(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            lines = [await place.regular() for _ in range(4)]
            admit, full = GroupCommit.admit, iter([True] * 3)

            def sometimes(self: GroupCommit, size: int) -> None:
                if next(full, False):
                    raise Throttled(100)
                admit(self, size)

            monkeypatch.setattr(GroupCommit, "admit", sometimes)
            found = await asyncio.gather(*(line.ask(WRITE) for line in lines))
            assert [status for status, _ in found] == [200] * 4
            assert any("throttle_wait_ms" in answer["performance"] for _, answer in found)
            assert place.app.keyring.anonymous.requests == 0

    run(scenario)


def test_writes_whose_sync_takes_long_are_answered_after_it(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with inn(tmp_path, durability="fsync") as place:
            lines = [await place.regular() for _ in range(4)]
            looks = iter([True])  # quick when the write is read, slow when it is to be synced
            is_quick = property(lambda _: next(looks, False))
            monkeypatch.setattr(GroupCommit, "is_quick", is_quick)
            lines[0].writer.write(WRITE + HEALTH)  # behind it, whatever comes
            found = [lines[0].answer(), *(line.ask(WRITE) for line in lines[1:])]
            assert [status for status, _ in await asyncio.gather(*found)] == [200] * 4
            assert (await lines[0].answer())[1]["status"] == "ok"
            assert place.app.keyring.anonymous.requests == 0
            assert len(await place.data()) == 4 * (REGULAR_AFTER + 4) + 4

    run(scenario)


def test_slow_writes_are_in_the_log_of_slow_requests(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            line = await place.regular()
            slow: list[Any] = []
            place.app.request_log.slow = lambda *found: slow.append(found)  # type: ignore[method-assign] # a spy
            place.app.slow_s = 0.0
            await line.write()
            assert len(slow) == 1

    run(scenario)


def test_a_key_at_its_limit_keeps_to_it(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        keyed = post("/v0/topics/t", BODY, b"Authorization: Bearer k")
        wrong = post("/v0/topics/t", BODY, b"Authorization: Bearer j")
        async with inn(tmp_path, keys="k", max_inflight_per_key=2) as place:
            lines = [await place.regular(keyed) for _ in range(2)]
            (caller,) = (head.caller for head in place.app._heads.values())
            assert caller is not None
            caller.requests += 1
            assert [s for s, _ in await asyncio.gather(*(line.ask(keyed) for line in lines))].count(
                200
            ) >= 1
            caller.requests += 1
            found = await asyncio.gather(*(line.ask(keyed) for line in lines))
            assert [status for status, _ in found] == [429, 429]
            caller.requests -= 2
            assert caller.requests == 0
            assert (await lines[0].ask(wrong))[0] == 401
            await lines[0].write(keyed)

    run(scenario)


def test_an_answer_that_would_be_packed_is_packed(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        packed = post(
            "/v0/topics/t",
            b'{"records":[%b]}' % b",".join([b'{"data":0}'] * 300),
            b"Accept-Encoding: gzip",
        )
        async with inn(tmp_path) as place:
            line = await place.regular(post("/v0/topics/t", BODY, b"Accept-Encoding: gzip"))
            for _ in range(2):  # with a head that is new, and one that is known
                line.writer.write(packed)
                head = await within(line.reader.readuntil(b"\r\n\r\n"))
                assert b"Content-Encoding: gzip" in head
                size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                await within(line.reader.readexactly(size))
            assert place.count == 1

    run(scenario)


def shrink(descriptor: int) -> None:
    """Let a socket keep as little as it can of what is sent."""
    borrowed = socket.socket(fileno=descriptor)
    borrowed.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    borrowed.detach()


def test_who_does_not_read_its_answers_gets_them_later(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            line, connection = await place.served()
            shrink(connection.descriptor)
            before = 0
            while place.count == 0:
                before = await line.write()
            topic, sent = place.app.engine.topic("t"), 0
            line.writer.transport.pause_reading()  # type: ignore[attr-defined] # of a socket's transport
            while place.count == 1:
                assert connection.buffered_bytes == 0
                assert sent < 10_000
                line.writer.write(MANY)
                sent += 1
                await until(lambda: topic.head_seq == before + 200 * sent)  # noqa: B023 - awaited at once
            assert connection.buffered_bytes > 0
            line.writer.write(WRITE)
            line.writer.transport.resume_reading()  # type: ignore[attr-defined] # as above
            for number in range(sent):
                status, answer = await line.answer()
                assert (status, answer["first_seq"]) == (200, before + 200 * number + 1)
            assert (await line.answer())[1]["first_seq"] == before + 200 * sent + 1
            while place.count == 0:
                await line.write()

    run(scenario)


def test_only_one_of_two_reads_from_a_socket(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            line, connection = await place.served()
            transport = connection._transport
            assert transport is not None
            for _ in range(3):
                assert transport.is_reading()
                while place.count == 0:
                    await line.write()
                assert not transport.is_reading()
                line.writer.write(WRITE[:-1])
                await until(lambda: place.count == 0)
                assert transport.is_reading()
                line.writer.write(WRITE[-1:])
                assert (await line.answer())[0] == 200

    run(scenario)


def test_what_comes_behind_a_slow_request_waits_for_it(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            line = await place.regular()
            line.writer.write(post("/v0/topics/made", BODY))  # on a thread
            await until(lambda: place.count == 0)
            line.writer.write(WRITE)
            found = [await line.answer() for _ in range(2)]
            assert [(status, answer["topic"]) for status, answer in found] == [
                (201, "made"),
                (200, "t"),
            ]

    run(scenario)


def test_who_asks_for_other_things_between_is_no_regular(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            line = await place.connect()
            for _ in range(2 * REGULAR_AFTER):
                await line.write()
                await line.ask(HEALTH)
            assert place.count == 0

    run(scenario)


def test_who_waits_for_slow_syncs_is_no_regular(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(GroupCommit, "is_quick", property(lambda _: False))
        async with inn(tmp_path, durability="fsync") as place:
            line = await place.connect()
            for _ in range(2 * REGULAR_AFTER):
                await line.write()
            assert place.count == 0

    run(scenario)


def test_a_regular_that_is_lost_here_is_forgotten(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            line, connection = await place.served()
            while place.count == 0:
                await line.write()
            assert connection._transport is not None
            connection._transport.abort()  # as when an answer cannot be sent
            await until(lambda: not place.app.connections)
            assert place.count == 0

    run(scenario)


def test_a_regular_may_become_a_web_socket(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            line, connection = await place.served()
            while place.count == 0:
                await line.write()
            transport = connection._transport
            assert transport is not None
            line.writer.write(
                b"GET /v0/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
                b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            )
            head = await within(line.reader.readuntil(b"\r\n\r\n"))
            assert head.startswith(b"HTTP/1.1 101 ")
            assert place.count == 0
            assert transport.is_reading()

    run(scenario)


def test_an_idle_regular_is_sent_away_and_a_busy_one_stays(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with inn(tmp_path, idle_timeout_ms=1000) as place:
            idle, busy = await place.regular(), await place.regular()
            gone = asyncio.ensure_future(idle.is_closed())
            while not gone.done():
                await busy.write()
                await asyncio.sleep(0.05)
            assert gone.result()
            assert place.count == 1
            await busy.write()

    run(scenario)


def test_a_server_that_stops_answers_its_regulars_and_lets_them_go(
    tmp_path: Path, run: Run
) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            lines = [await place.regular() for _ in range(3)]
            await place.server.stop()
            for line in lines:
                assert await line.is_closed()
            assert place.count == 0

    run(scenario)


def test_a_deleted_topic_is_made_again_by_the_next_write(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            line = await place.regular()
            await place.app.ready_log.drop("t")
            status, answer = await line.ask(WRITE)
            assert (status, answer["created"], answer["first_seq"]) == (201, True, 1)
            assert await line.write() == 2

    run(scenario)


def test_a_bug_in_finding_a_head_answers_and_harms_nobody(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            lines = [await place.regular() for _ in range(2)]
            seen: list[Any] = []
            place.app.loop.set_exception_handler(lambda _, context: seen.append(context))
            engine = place.app.engine
            find, fails = engine.find_topic, iter([True])

            def sometimes(name: str) -> Any:  # noqa: ANN401 - that of find_topic
                if next(fails, False):
                    raise ZeroDivisionError
                return find(name)

            monkeypatch.setattr(engine, "find_topic", sometimes)
            for line in lines:
                assert (await line.ask(WRITE))[0] == 200
            assert [type(context["exception"]) for context in seen] == [ZeroDivisionError]

    run(scenario)


def fail(*_: object, **__: object) -> None:
    raise ZeroDivisionError


def test_who_does_not_read_a_large_answer_is_not_read_from_either(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            await place.append("t", *["z" * 60_000] * 100)
            line, connection = await place.served()
            shrink(connection.descriptor)
            while place.count == 0:
                await line.write()
            line.writer.transport.pause_reading()  # type: ignore[attr-defined] # of a socket's transport
            line.writer.write(post("/v0/topics/t/diff", b'{"from_seq":0}') + WRITE)
            await until(lambda: connection._paused)
            assert place.count == 0
            transport = connection._transport
            assert transport is not None
            assert not transport.is_reading()
            line.writer.transport.resume_reading()  # type: ignore[attr-defined] # as above
            for _ in range(2):
                assert (await line.answer())[0] == 200
            await line.write()
            assert transport.is_reading() == (place.count == 0)

    run(scenario)


def test_a_bug_in_one_request_harms_nobody_else(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            lines = [await place.regular() for _ in range(4)]
            seen, read_head = place.bugs(), place.app.read_head
            monkeypatch.setattr(
                place.app, "read_head", lambda raw: fail() if b"/bug" in raw else read_head(raw)
            )
            lines[0].writer.write(HEALTH.replace(b"/health", b"/bug"))
            for line in lines[1:]:
                line.writer.write(HEALTH)
            for line in lines[1:]:
                assert (await line.answer())[1]["status"] == "ok"
            assert await lines[0].is_closed()
            assert seen == [ZeroDivisionError]
            for line in lines[1:]:
                await line.write()

    run(scenario)


def test_writes_that_meet_a_bug_are_not_answered_later_as_others(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            line, other = await place.regular(), await place.regular()
            seen = place.bugs()
            with monkeypatch.context() as patch:
                patch.setattr(place.app.engine, "submit_append", fail)
                line.writer.write(WRITE)
                await until(lambda: bool(seen))
            assert (place.count, place.regulars._unanswered) == (1, [])
            assert not place.app.in_turn
            line.writer.write(HEALTH)  # its answer would pass for that of the write
            seq = await other.write()
            assert await other.write() == seq + 1
            assert line.reader._buffer == b""  # type: ignore[attr-defined] # what has come
            line.reset()
            await until(lambda: len(place.app.connections) == 1)
            assert place.app.keyring.anonymous.requests == 0

    run(scenario)


def test_who_asks_more_than_writes_leaves_even_if_others_meet_a_bug(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            line, other = await place.regular(), await place.regular()
            seen, take_turn = place.bugs(), place.app.take_turn
            planted: list[bool] = []

            def sometimes() -> None:
                take_turn()
                if planted:
                    planted.pop()
                    fail()

            monkeypatch.setattr(place.app, "take_turn", sometimes)
            for request in (WRITE, post("/v0/topics/t/diff", b"{}")):  # known, and not
                planted.append(True)
                line.writer.write(request[:-1])
                await until(lambda: not planted)
                assert place.count == 1
                line.writer.write(request[-1:])
                await line.answer()
                while place.count == 1:
                    await line.write()
            assert seen == [ZeroDivisionError] * 2
            await other.write()

    run(scenario)


def test_who_cannot_be_answered_is_cut_off(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            lines = [await place.regular() for _ in range(3)]
            seen = place.bugs()
            with monkeypatch.context() as patch:
                patch.setattr("topics.api.regulars.send_answers", fail)
                for line in lines[:2]:
                    line.writer.write(WRITE)
                for line in lines[:2]:
                    with suppress(ConnectionResetError):
                        assert await line.is_closed()
            assert seen == [ZeroDivisionError]
            assert place.count == 1
            await lines[2].write()

    run(scenario)


def test_a_bug_while_reading_leaves_nothing_half_done(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            lines = [await place.regular() for _ in range(2)]
            await place.app.ready_log.create("u", durability="disk")
            other = await place.regular(post("/v0/topics/u", BODY))
            seen, find = place.bugs(), place.regulars._find_kind
            monkeypatch.setattr(
                place.regulars,
                "_find_kind",
                lambda raw: find(raw) if b"/t " in raw else (),
            )
            for line in lines:
                line.writer.write(WRITE)
            other.writer.write(post("/v0/topics/u", BODY))
            for line in lines:
                assert (await line.answer())[0] == 200
            for line in (*lines, other):
                with suppress(ConnectionResetError):
                    assert await line.is_closed()
            assert (seen, place.count) == ([ValueError], 0)
            assert place.regulars._unanswered == []

    run(scenario)


def test_who_sends_more_before_its_turn_is_no_regular_yet(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            line, connection = await place.served()
            while connection._repeats < REGULAR_AFTER - 1:
                await line.write()
            connection.data_received(WRITE)
            connection.data_received(WRITE[:20])  # within the same turn
            assert place.count == 0
            connection.data_received(WRITE[20:])
            seqs = [(await line.answer())[1]["first_seq"] for _ in range(2)]
            assert seqs == [seqs[0], seqs[0] + 1]

    run(scenario)


def test_a_write_that_the_disk_fails_is_told_so(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            lines = [await place.regular() for _ in range(3)]
            log = place.app.engine.shards[0].commit.log
            count = len(await place.data())

            def refuse(*_: object, **__: object) -> None:
                raise ShardReadOnly("no room")

            with monkeypatch.context() as patch:
                patch.setattr(log, "write", refuse)
                found = await asyncio.gather(*(line.ask(WRITE) for line in lines))
            assert [status for status, _ in found] == [503] * 3
            assert len(await place.data()) == count
            assert await lines[0].write() == count + 1

    run(scenario)


def test_heads_of_one_topic_share_its_batch(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            longer = post("/v0/topics/t", b'{"records":[{"data":"xx"},{"data":"xxx"}]}')
            lines = [await place.regular(request) for request in (WRITE, longer, WRITE)]
            before = len(await place.data())
            for line, request in zip(lines, (WRITE, longer, WRITE), strict=True):
                line.writer.write(request)
            counts = [(await line.answer())[1]["count"] for line in lines]
            assert (counts, place.count) == ([1, 2, 1], 3)
            assert place.regulars._unanswered == []
            assert sorted((await place.data())[before:], key=len) == ["x", "x", "xx", "xxx"]

    run(scenario)


def test_writes_gathered_before_do_not_mix_with_those_of_regulars(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            log = place.app.ready_log
            await log.create("u", durability="disk")
            to_u = post("/v0/topics/u", b'{"records":[{"data":"u"}]}')
            lines = [await place.regular(request) for request in (WRITE, to_u, WRITE)]
            u = place.app.engine.topic("u")
            waiter = log.waiter_of(u)
            waiter._flush_scheduled = True  # it comes after the regulars
            early: list[Any] = []
            waiter.take(u, b'{"records":[{"data":"u"}]}', None, lambda *found: early.append(found))
            for line, request in zip(lines, (WRITE, to_u, WRITE), strict=True):
                line.writer.write(request)
            topics = [(await line.answer())[1]["topic"] for line in lines]
            assert (topics, len(early)) == (["t", "u", "t"], 1)
            assert set(await place.data("t")) == {"x"}
            assert set(await place.data("u")) == {"u"}

    run(scenario)


def test_a_write_waits_behind_those_that_wait_for_room(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            lines, parking = [await place.regular() for _ in range(2)], place.app.parking
            monkeypatch.setattr(parking, "_schedule", lambda: None)
            with monkeypatch.context() as patch:

                def full(*_: object) -> None:
                    raise Throttled(100)

                patch.setattr(GroupCommit, "admit", full)
                lines[0].writer.write(WRITE)
                await until(lambda: bool(parking.rows))
            lines[1].writer.write(WRITE)
            await until(lambda: [len(row) for row in parking.rows.values()] == [2])
            parking._retry()
            seqs = [(await line.answer())[1]["first_seq"] for line in lines]
            assert seqs == [seqs[0], seqs[0] + 1]

    run(scenario)


def test_a_server_that_is_about_to_stop_takes_no_writes_of_regulars(
    tmp_path: Path, run: Run
) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            line = await place.regular()
            place.app.stopping = True
            assert (await line.ask(WRITE))[0] == 503
            place.app.stopping = False
            await line.write()

    run(scenario)


def test_what_a_known_head_asks_for_is_done(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            line = await place.regular()
            found = [(await line.ask(post("/v0/topics/t?return_seqs=0", BODY)))[1] for _ in "ab"]
            assert ["seqs" in answer for answer in found] == [False, False]
            keyed = post("/v0/topics/t", BODY, b"Idempotency-Key: once")
            found = [(await line.ask(keyed))[1] for _ in "ab"]
            assert [answer["deduped"] for answer in found] == [False, True]
            assert place.count == 1

    run(scenario)


def test_a_limit_refuses_a_write_of_its_own(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            lines = [await place.regular() for _ in range(3)]
            room = len(await place.data()) + 1
            await place.app.ready_log.put_topic("t", {"discard": "reject", "cap_records": room})
            found = await asyncio.gather(*(line.ask(WRITE) for line in lines))
            assert [status for status, _ in found].count(200) == 1

    run(scenario)


def test_every_write_of_a_regular_is_counted(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with inn(tmp_path) as place:
            lines = [await place.regular() for _ in range(5)]

            def answered() -> int:
                return sum(sum(found.counts) for found in place.app.metrics.latency_us.values())

            before = answered()
            await asyncio.gather(*(line.write() for line in lines))
            assert (answered(), place.count) == (before + 5, 5)

    run(scenario)
