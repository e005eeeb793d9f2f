"""Streams that are sent to with one call, over real sockets: nothing is doubled, lost or cut."""

import asyncio
from pathlib import Path

from tests.unit.api.streaming import EventReader, Place, run, serving, until

READERS = 6


async def open_all(place: Place, count: int = READERS) -> list[EventReader]:
    await place.call("PUT", "/v0/topics/t", {"durability": "memory"})
    return [await place.stream(await place.watch({"t": {}})) for _ in range(count)]


async def ride(place: Place, count: int) -> None:
    """Wait until so many streams ride together."""
    await until(lambda: riders(place) == count)


def riders(place: Place) -> int:
    return sum(len(convoy) for convoy in place.app.live.feed.convoys.values())


async def seqs(stream: EventReader, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        event = await stream.next()
        assert event.kind in ("record", "caught-up")
        found += event.seqs if event.kind == "record" else []
    return found


def test_all_who_wait_ride_and_get_each_record_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            streams = await open_all(place)
            await ride(place, READERS)
            for n in range(20):
                await place.append("t", n)
            for stream in streams:
                assert await seqs(stream, 20) == list(range(1, 21))
            assert place.app.metrics.records_delivered == 20 * READERS

    run(scenario)


def test_heartbeats_and_records_take_turns_on_a_stream(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            streams = await open_all(place)
            for n in range(10):
                await ride(place, READERS)
                for one in place.app.live.streams:
                    one.write(b": beat\n\n")  # type: ignore[attr-defined] # an EventStream
                assert riders(place) == 0
                await place.append("t", n)
            for stream in streams:
                assert await seqs(stream, 10) == list(range(1, 11))

    run(scenario)


def test_readers_that_leave_and_come_do_not_disturb_the_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            streams = await open_all(place)
            await ride(place, READERS)
            for n in range(READERS - 1):
                await streams[n].close()
                await place.append("t", n)
                late = await place.stream(await place.watch({"t": {"from_seq": n + 1}}))
                streams.append(late)
            await until(lambda: place.app.metrics.sse_connections == READERS)
            await ride(place, READERS)
            await place.append("t", "last")
            assert await seqs(streams[READERS - 1], READERS) == list(range(1, READERS + 1))
            for n, stream in enumerate(streams[READERS:]):
                wanted = list(range(n + 2, READERS + 1))
                assert await seqs(stream, len(wanted)) == wanted

    run(scenario)


def test_a_reader_that_stands_still_gets_all_of_it_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, stream_buffer_bytes=1 << 20) as place:
            streams = await open_all(place)
            sleeper = await place.stream(await place.watch({"t": {}}), rcvbuf=4096)
            sleeper.writer.transport.pause_reading()  # type: ignore[attr-defined] # of a socket's transport
            await ride(place, READERS + 1)
            pad = "x" * 50_000
            reading = [asyncio.create_task(seqs(stream, 60)) for stream in streams]
            for n in range(60):
                await place.append("t", [n, pad])
            for task in reading:
                assert await task == list(range(1, 61))
            await ride(place, READERS)  # the sleeper rides no longer
            sleeper.writer.transport.resume_reading()  # type: ignore[attr-defined] # as above
            assert await seqs(sleeper, 60) == list(range(1, 61))
            await ride(place, READERS + 1)

    run(scenario)


def test_an_old_client_never_rides(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await open_all(place, 2)
            url = await place.watch({"t": {}})
            reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
            place.writers.append(writer)
            writer.write(b"GET %b HTTP/1.0\r\nAccept: text/event-stream\r\n\r\n" % url.encode())
            await reader.readuntil(b"caught-up")
            await ride(place, 2)
            await place.append("t", "x")
            assert b'"x"' in await reader.readuntil(b'"x"')

    run(scenario)
