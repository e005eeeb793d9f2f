"""Readers that leave before their stream is open."""

import asyncio
from pathlib import Path

import h2.config
import h2.connection
from tests.unit.api.streaming import Place, run, serving, until, within


async def ask_and_leave(place: Place, path: str) -> None:
    """Ask for a stream and take it back in the same breath; return when the server has seen it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    peer = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    peer.initiate_connection()
    head = [
        (":method", "GET"), (":scheme", "http"), (":authority", "127.0.0.1"), (":path", path),
        ("accept", "text/event-stream"),
    ]  # fmt: skip
    peer.send_headers(1, head, end_stream=True)
    peer.reset_stream(1)
    peer.ping(b"all seen")
    writer.write(peer.data_to_send())
    seen = b""
    while b"all seen" not in seen:
        seen += await within(reader.read(65_536))
    writer.close()


def test_a_watcher_that_left_at_once_is_not_counted_and_may_come_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("t", 1)
            url = await place.watch({"t": {}})
            for _ in range(3):
                await ask_and_leave(place, url)
            assert place.app.metrics.sse_connections == 0
            assert not place.app.live.streams
            assert place.app.engine.topic("t").watchers == 0
            assert (await (await place.stream(url)).next()).seqs == [1]

    run(scenario)


def test_a_worker_that_left_at_once_takes_no_job(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.call("PUT", "/v0/topics/q", {"type": "queue"})
            await ask_and_leave(place, "/v0/topics/q/work?node=ghost")
            await place.append("q", "job")
            worker = await place.stream("/v0/topics/q/work?node=real")
            assert (await worker.next()).data["data"] == "job"
            assert place.app.engine.topic("q").watchers == 1
            await worker.close()
            await until(lambda: place.app.metrics.sse_connections == 0)

    run(scenario)
