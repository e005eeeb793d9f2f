"""The WebSocket, spoken to with somebody else's client."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.api.streaming import Place, run, serving, until, within
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from topics.engine.request import Write
from topics.engine.topics.topic import Topic


class Talk:
    """A connection, in ops."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, op: str, **fields: Any) -> None:  # noqa: ANN401 - any JSON
        await self.connection.send(msgspec.json.encode({"op": op, **fields}).decode())

    async def next(self) -> dict[str, Any]:
        message: dict[str, Any] = msgspec.json.decode(await within(self.connection.recv()))
        return message

    async def ask(self, op: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
        await self.send(op, **fields)
        return await self.next()


@asynccontextmanager
async def talking(place: Place, *, query: str = "", **more: Any) -> AsyncIterator[Talk]:  # noqa: ANN401 - of the client
    url = f"ws://127.0.0.1:{place.port}/v0/ws{query}"
    async with connect(url, compression=None, proxy=None, **more) as connection:
        yield Talk(connection)


def test_publish_and_subscribe_over_one_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place, talking(place) as talk:
            ack = await talk.ask(
                "publish", topic="t", records=[{"data": 1}, {"data": 2}], request_id="p1"
            )
            assert ack == {
                "op": "ack", "request_id": "p1", "topic": "t", "first_seq": 1, "last_seq": 2,
                "seqs": [1, 2], "head_seq": 2, "count": 2, "created": True, "deduped": False,
            }  # fmt: skip
            told = await talk.ask("subscribe", topics={"t": {"from_seq": 1}}, request_id=7)
            assert told == {
                "op": "subscribed", "request_id": 7,
                "topics": {"t": {"from_seq": 1, "head_seq": 2, "earliest_seq": 1}},
            }  # fmt: skip
            record = await talk.next()
            assert (record["op"], record["request_id"]) == ("record", 7)
            assert [r["$seq"] for r in record["records"]] == [2]
            assert (await talk.next())["op"] == "caught_up"
            await place.append("t", 3)
            assert (await talk.next())["to_seq"] == 3
            gone = await talk.ask("unsubscribe", topic="t")
            assert gone == {"op": "unsubscribed", "topics": ["t"]}
            assert place.app.engine.topic("t").watchers == 0
            assert (await talk.ask("ping", request_id="x"))["op"] == "pong"

    run(scenario)


def test_publishes_keep_their_order_although_the_first_creates_the_topic(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place, talking(place) as talk:
            for n in range(300):
                await talk.send("publish", topic="t", records=[{"data": n}], request_id=n)
            acks = [await talk.next() for _ in range(300)]
            seqs = {ack["request_id"]: ack["first_seq"] for ack in acks}
            assert seqs == {n: n + 1 for n in range(300)}

    run(scenario)


def test_a_pattern_is_subscribed_to_and_left(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place, talking(place) as talk:
            await place.append("log.a", 1)
            await talk.ask("subscribe", topic="log.*")
            assert (await talk.next())["topic"] == "log.a"
            assert (await talk.next())["op"] == "caught_up"
            await place.append("log.b", 1)
            while (message := await talk.next())["op"] != "record":
                pass
            assert message["topic"] == "log.b"
            await until(lambda: place.app.engine.topic("log.b").watchers == 1)
            while (message := await talk.ask("unsubscribe", topics=["log.*"]))["op"] == "caught_up":
                pass
            assert place.app.engine.topic("log.a").watchers == 0
            assert place.app.engine.topic("log.b").watchers == 0

    run(scenario)


def test_a_pattern_subscribed_to_again_is_delivered_once_and_counted_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, max_watch_topics=2) as place, talking(place) as talk:
            for n in range(3):
                told = await talk.ask("subscribe", topics=["log.*"], request_id=n)
                assert (told["op"], told["request_id"]) == ("subscribed", n)
            await place.append("log.a", 1)
            records: list[int] = []
            while not records:
                message = await talk.next()
                records += [message["request_id"]] if message["op"] == "record" else []
            await talk.send("ping")  # a second delivery would be in front of its answer
            while (message := await talk.next())["op"] != "pong":
                records += [message["request_id"]] if message["op"] == "record" else []
            assert records == [2]
            assert place.app.engine.topic("log.a").watchers == 1

    run(scenario)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"op": "subscribe", "topics": {"no": {}}}, "topic_not_found"),
        ({"op": "subscribe", "topics": {}}, "invalid_request"),
        ({"op": "subscribe", "topics": 1}, "invalid_request"),
        ({"op": "publish", "topic": "t", "records": []}, "invalid_request"),
        ({"op": "publish", "topic": "b d", "records": [{"data": 1}]}, "invalid_request"),
        ({"op": "publish", "records": [{"data": 1}]}, "invalid_request"),
        ({"op": "dance"}, "invalid_request"),
        ({}, "invalid_request"),
    ],
)
def test_a_bad_op_is_told_and_the_connection_goes_on(
    tmp_path: Path, message: dict[str, Any], code: str
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place, talking(place) as talk:
            body = msgspec.json.encode({**message, "request_id": "r"}).decode()
            await talk.connection.send(body)
            error = await talk.next()
            assert (error["op"], error["request_id"], error["code"]) == ("error", "r", code)
            assert (await talk.ask("ping"))["op"] == "pong"

    run(scenario)


def test_each_op_is_authorised_on_its_own(tmp_path: Path) -> None:
    keys = "all,reader:r,writer:w:t"

    async def scenario() -> None:
        async with serving(tmp_path, keys=keys) as place:
            with pytest.raises(InvalidStatus, match="401"):
                async with talking(place):
                    pass
            async with talking(place, query="?token=all") as talk:
                config = {"ttl_ms": 1000}
                message = {"topic": "t", "records": [{"data": 1}], "config": config}
                assert (await talk.ask("publish", **message))["op"] == "ack"
            async with talking(place, query="?token=writer") as talk:
                assert (await talk.ask("publish", **message))["code"] == "forbidden"
                del message["config"]
                assert (await talk.ask("publish", **message))["op"] == "ack"
                message["topic"] = "other"
                assert (await talk.ask("publish", **message))["code"] == "forbidden"
                assert (await talk.ask("subscribe", topic="t"))["code"] == "forbidden"
            header = {"Authorization": "Bearer reader"}
            async with talking(place, additional_headers=header) as talk:
                message["topic"] = "t"
                assert (await talk.ask("publish", **message))["code"] == "forbidden"
                assert (await talk.ask("subscribe", topic="t"))["op"] == "subscribed"

    run(scenario)


def test_pages_of_other_hosts_may_not_connect_without_keys(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            for origin in ("https://evil.example", "null", "http://127.0.0.1.evil.example"):
                with pytest.raises(InvalidStatus, match="403"):
                    async with talking(place, origin=origin):
                        pass
            for origin in ("http://localhost:3000", f"http://127.0.0.1:{place.port}"):
                async with talking(place, origin=origin) as talk:
                    assert (await talk.ask("ping"))["op"] == "pong"

    run(scenario)


def test_what_is_no_text_or_too_long_ends_the_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, max_body_bytes=1000) as place:
            async with talking(place) as talk:
                await talk.connection.send(b"\0")
                with pytest.raises(ConnectionClosed) as closed:
                    await talk.next()
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == 1003
            async with talking(place) as talk:
                await talk.connection.send("x" * 2000)
                with pytest.raises(ConnectionClosed) as closed:
                    await talk.next()
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == 1009
            await until(lambda: place.app.metrics.websocket_connections == 0)

    run(scenario)


def test_a_stopping_server_answers_the_writes_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place, talking(place) as talk:
            engine, go_on = place.app.engine, threading.Event()
            real = engine.topic_for_write

            def topic_for_write(name: str, write: Write) -> tuple[Topic, bool]:
                assert go_on.wait(10)
                return real(name, write)

            monkeypatch.setattr(engine, "topic_for_write", topic_for_write)
            await talk.send("publish", topic="t", records=[{"data": 1}])
            (socket,) = place.app.live.streams
            await until(lambda: socket._handling)  # type: ignore[attr-defined] # of a WebSocket
            stopping = asyncio.ensure_future(place.server.stop())
            await until(lambda: place.app.stopping)
            await talk.send("publish", topic="t", records=[{"data": 2}])
            await until(lambda: bool(socket._messages))  # type: ignore[attr-defined] # as above
            go_on.set()
            assert sorted([(await talk.next())["op"], (await talk.next())["op"]]) == [
                "ack", "error"
            ]  # fmt: skip
            assert (await talk.next())["code"] == "shutting_down"
            with pytest.raises(ConnectionClosed) as closed:
                await talk.next()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1001
            await stopping

    run(scenario)


def test_a_write_that_never_ends_does_not_hold_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place, talking(place) as talk:
            for_ever = asyncio.Event()

            async def topic_for_write(name: str, write: Write) -> None:
                del name, write
                await for_ever.wait()

            monkeypatch.setattr(place.app.ready_log, "topic_for_write", topic_for_write)
            await talk.send("publish", topic="t", records=[{"data": 1}])
            (socket,) = place.app.live.streams
            await until(lambda: socket._handling)  # type: ignore[attr-defined] # of a WebSocket
            await within(place.server.stop())
            assert (await talk.next())["code"] == "shutting_down"

    run(scenario)


def test_a_stopping_server_says_good_bye(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place, talking(place) as talk:
            await place.server.stop()
            assert (await talk.next())["code"] == "shutting_down"
            with pytest.raises(ConnectionClosed) as closed:
                await talk.next()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1001

    run(scenario)


def test_a_connection_that_does_not_read_is_closed_and_its_neighbour_is_not(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, slow_reader_ms=300, stream_buffer_bytes=65_536) as place:
            await place.append("t", 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", place.port, limit=4096)
            place.writers.append(writer)
            head = place._head(
                "GET", "/v0/ws", 0,
                {"Accept": "text/event-stream", "Upgrade": "websocket", "Connection": "Upgrade",
                 "Sec_WebSocket_Version": "13", "Sec_WebSocket_Key": "AAAAAAAAAAAAAAAAAAAAAA=="},
            )  # fmt: skip
            op = b'{"op":"subscribe","topics":{"t":{}}}'
            mask = b"\0\0\0\0"
            writer.write(head + bytes([0x81, 0x80 | len(op)]) + mask + op)
            await within(reader.readuntil(b"subscribed"))
            writer.transport.pause_reading()  # type: ignore[attr-defined] # of a socket's transport
            async with talking(place) as talk:
                await talk.ask("subscribe", topic="t", tail=True)
                await talk.next()
                for n in range(100):
                    await place.append("t", [n, "x" * 100_000])
                    assert (await talk.next())["records"][0]["data"][0] == n
                await until(lambda: place.app.metrics.websocket_connections == 1)
                assert (await talk.ask("ping"))["op"] == "pong"

    run(scenario)


def test_subscriptions_are_counted_among_what_watches_keep(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, max_watch_bytes=100_000) as place, talking(place) as talk:
            await place.append("t", 1)
            room = place.app.watches.room
            told = await talk.ask("subscribe", topics=["t", "u*"], node="n" * 1000)
            assert told["op"] == "subscribed"
            used = room.used_bytes
            assert used > 3000
            while (await talk.next())["op"] != "caught_up":
                pass
            error = await talk.ask("subscribe", topic="t", node="n" * 60_000)
            assert error["detail"] == {"limit": "max_watch_bytes", "max": 100_000}
            assert room.used_bytes == used
            told = await talk.ask("subscribe", topics=["no", "nor"], lenient=True)
            assert told["topics"] == {}
            assert room.used_bytes == used, "a subscription of nothing is not kept"
            await talk.ask("unsubscribe")
            assert room.used_bytes == 0
            await talk.ask("subscribe", topic="t", tail=True)
            await talk.connection.close()
            await until(lambda: room.used_bytes == 0)

    run(scenario)
