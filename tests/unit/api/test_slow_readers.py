"""Readers that do not read: told, closed, welcome back, and nobody else's trouble."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.api.streaming import Event, EventReader, Place, run, serving, until

from topics.api import patience, sse, unread

PAD = "x" * 50_000
RECORDS = 150


async def read_all(stream: EventReader) -> list[Event]:
    events = []
    while (event := await stream.next()).kind:
        events.append(event)
    return events


async def open_sleeper(place: Place, url: str) -> EventReader:
    sleeper = await place.stream(url, rcvbuf=4096)
    sleeper.writer.transport.pause_reading()  # type: ignore[attr-defined] # of a socket's transport
    return sleeper


def test_a_reader_that_stands_still_is_told_and_may_go_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "LINGER_S", 60)  # to read on, however busy the machine is

    async def scenario() -> None:
        async with serving(tmp_path, slow_reader_ms=300, stream_buffer_bytes=65_536) as place:
            await place.call("PUT", "/v0/topics/t", {"durability": "memory"})
            url = await place.watch({"t": {}})
            sleeper = await open_sleeper(place, url)
            beside = await place.stream(await place.watch({"t": {"tail": True}}))
            for n in range(RECORDS):
                await place.append("t", [n, PAD])
            got: list[int] = []
            while len(got) < RECORDS:
                event = await beside.next()
                got += event.seqs if event.kind == "record" else []
            assert got == list(range(1, RECORDS + 1))

            await until(lambda: place.app.metrics.sse_connections == 1)
            sleeper.writer.transport.resume_reading()  # type: ignore[attr-defined] # as above
            events = await read_all(sleeper)
            assert events[-1].kind == "error"
            assert events[-1].data["code"] == "slow_consumer"
            assert events[-1].data["retry_after_ms"] > 0
            records = [event for event in events if event.kind == "record"]
            seen = [seq for event in records for seq in event.seqs]
            assert seen == list(range(1, len(seen) + 1))
            assert len(seen) < RECORDS

            again = await place.stream(url, Last_Event_ID=records[-1].id)
            while len(seen) < RECORDS:
                event = await again.next()
                seen += event.seqs if event.kind == "record" else []
            assert seen == list(range(1, RECORDS + 1))

    run(scenario)


def test_what_waits_for_one_reader_is_bounded(tmp_path: Path) -> None:
    async def scenario() -> None:
        limit = 65_536
        async with serving(tmp_path, stream_buffer_bytes=limit) as place:
            await place.call("PUT", "/v0/topics/t", {"durability": "memory"})
            sleeper = await open_sleeper(place, await place.watch({"t": {}}))
            for n in range(RECORDS):
                await place.append("t", [n, PAD])
            (stream,) = place.app.live.streams
            await until(lambda: stream.buffered_bytes > limit // 2)  # type: ignore[attr-defined] # of an event stream
            one_record = 2 * len(PAD)  # larger than half of the limit, which frames otherwise keep
            assert stream.buffered_bytes <= limit // 2 + one_record  # type: ignore[attr-defined] # as above
            sleeper.writer.transport.resume_reading()  # type: ignore[attr-defined] # of a socket's transport
            got: list[int] = []
            while len(got) < RECORDS:
                event = await sleeper.next()
                got += event.seqs if event.kind == "record" else []
            assert got == list(range(1, RECORDS + 1))

    run(scenario)


def test_two_hundred_watchers_share_one_encoding(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("t", 1)
            urls = [await place.watch({"t": {"tail": True}}) for _ in range(200)]
            streams = await asyncio.gather(*(place.stream(url) for url in urls))
            for stream in streams:
                assert (await stream.next()).kind == "caught-up"
            before = place.app.live.feed.encodings
            await place.append("t", {"n": 2})
            for stream in streams:
                assert (await stream.next()).seqs == [2]
            assert place.app.live.feed.encodings == before + 1
            assert place.app.metrics.records_delivered == 200

    run(scenario)


def test_a_frame_is_no_larger_than_what_may_wait_for_a_reader(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, stream_buffer_bytes=65_536) as place:
            await place.append("t", *["x" * 1000] * 200)
            stream = await place.stream(await place.watch({"t": {}}, max_batch_bytes=8 << 20))
            got: list[int] = []
            while len(got) < 200:
                event = await stream.next()
                assert len(event.seqs) <= 33
                got += event.seqs
            assert got == list(range(1, 201))

    run(scenario)


def test_readers_of_one_key_that_stand_still_share_what_may_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "HURRY_S", 0.3)
    monkeypatch.setattr(unread, "LINGER_S", 0.1)
    monkeypatch.setattr(sse, "LINGER_S", 0.1)

    async def scenario() -> None:
        limit = 1 << 20
        async with serving(tmp_path, keys="one,other", max_unread_stream_bytes=limit) as place:
            one, other = ({"Authorization": f"Bearer {key}"} for key in ("one", "other"))
            for _ in range(12):
                records = [{"data": "x" * 10_000}] * 100
                await place.call("POST", "/v0/topics/t", {"records": records}, **one)
            budget, most = place.app.unread_streams, 0

            async def watch(key: dict[str, str]) -> str:
                _, made = await place.call("POST", "/v0/watch", {"topics": {"t": {}}}, **key)
                return str(made["stream_url"])

            for _ in range(6):
                sleeper = await place.stream(
                    await watch(one), rcvbuf=4096, Authorization="Bearer one"
                )
                sleeper.writer.transport.pause_reading()  # type: ignore[attr-defined] # of a socket's transport
                most = max(most, budget.used)
            await until(lambda: not budget.has_room(place.app.keyring.identify("one")))
            assert max(most, budget.used) <= limit // 2 + 256 * 1024 + 20_000, "and one frame"
            beside = await place.stream(await watch(other), Authorization="Bearer other")
            got: list[int] = []
            while len(got) < 1200:
                event = await beside.next()
                got += event.seqs if event.kind == "record" else []
            await until(lambda: place.app.metrics.sse_connections < 7)
            assert place.app.metrics.sse_connections >= 1
            await beside.close()
            await until(lambda: place.app.metrics.sse_connections == 0)
            await until(lambda: budget.used == 0)

    run(scenario)
