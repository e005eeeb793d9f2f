"""Watches that outlive the server."""

from pathlib import Path

import pytest
from tests.unit.api.streaming import EventReader, Place, run, serving, until

from topics.engine.watch.event_id import decode_event_id

FILE = "meta/watches.json"


async def read_to(stream: EventReader, topic: str, seq: int) -> tuple[list[int], str]:
    """Return the seqs of all records up to one of a topic, and the last id."""
    seqs: list[int] = []
    while True:
        event = await stream.next()
        assert event.kind in ("record", "caught-up"), event.data
        if event.kind == "record":
            seqs += event.seqs
            if event.data["topic"] == topic and event.data["to_seq"] == seq:
                return seqs, event.id


async def first_save(place: Place, path: Path) -> bytes:
    await until(lambda: (path / FILE).exists() and place.app.metrics.watch_sessions == 1)
    return (path / FILE).read_bytes()


def test_a_watch_goes_on_where_it_was_after_a_stop(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("t", 1, 2)
            url = await place.watch({"t": {}})
            assert (await read_to(await place.stream(url), "t", 2))[0] == [1, 2]
        async with serving(tmp_path) as place:
            await place.append("t", 3)
            assert (await read_to(await place.stream(url), "t", 3))[0] == [3]
            assert place.app.metrics.watch_sessions == 1

    run(scenario)


@pytest.mark.parametrize("name", ["t", "t*"])
def test_a_watch_still_has_its_end_after_a_stop(tmp_path: Path, name: str) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("t", 1, 2)
            url = await place.watch({name: {"from_ts": 1, "until_ts": 2**40}})
        async with serving(tmp_path) as place:
            event = await (await place.stream(url)).next()
            assert event.kind == "caught-up", "every record is later"
            assert event.data == {"topic": "t", "head_seq": 2, "until_reached": True}
            assert decode_event_id(event.id) == {"t": 0}

    run(scenario)


@pytest.mark.parametrize("knows_id", [True, False])
def test_after_a_crash_the_id_of_the_reader_is_newer_than_what_was_saved(
    tmp_path: Path, *, knows_id: bool
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("log.a", 1)
            url = await place.watch({"log.*": {}})
            saved = await first_save(place, tmp_path)
            stream = await place.stream(url)
            await read_to(stream, "log.a", 1)
            await place.append("log.a", 2)
            await read_to(stream, "log.a", 2)
            await place.append("log.b", 1, 2, 3)  # after the save
            _, last_id = await read_to(stream, "log.b", 3)
            assert decode_event_id(last_id) == {"log.a": 2, "log.b": 3}
        (tmp_path / FILE).write_bytes(saved)
        async with serving(tmp_path) as place:
            stream = await place.stream(url, Last_Event_ID=last_id if knows_id else "")
            await place.append("log.b", 4)
            seqs, _ = await read_to(stream, "log.b", 4)
            assert sorted(seqs) == ([4] if knows_id else [1, 1, 2, 2, 3, 4])
            await stream.close()
            await until(lambda: place.app.metrics.sse_connections == 0)
            back = await place.stream(url, Last_Event_ID=last_id)  # from now on as ever
            assert (await read_to(back, "log.b", 4))[0] == [4]

    run(scenario)


def test_a_topic_made_again_before_the_reader_came_back_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("t", 1)
            url = await place.watch({"t": {}})
            _, last_id = await read_to(await place.stream(url), "t", 1)
        async with serving(tmp_path) as place:
            await place.call("DELETE", "/v0/topics/t")
            await place.append("t", 1)
            stream = await place.stream(url, Last_Event_ID=last_id)
            assert (await stream.next()).kind == "topic-deleted"
            assert (await stream.next()).seqs == [1]

    run(scenario)


@pytest.mark.parametrize("keys", ["other", "key:rw:else.", ""])
def test_a_watch_is_gone_when_its_key_is_or_may_not_see_it(tmp_path: Path, keys: str) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, keys="key") as place:
            authorization = {"Authorization": "Bearer key"}
            await place.call("PUT", "/v0/topics/t", {}, **authorization)
            _, made = await place.call("POST", "/v0/watch", {"topics": {"t": {}}}, **authorization)
        assert b"Bearer" not in (tmp_path / FILE).read_bytes()
        async with serving(tmp_path, keys=keys) as place:
            assert place.app.metrics.watch_sessions == 0
            key = keys.partition(":")[0]
            status, _ = await place.call("GET", made["stream_url"], Authorization=f"Bearer {key}")
            assert status == 404

    run(scenario)


@pytest.mark.parametrize("content", [b'[{"wid":', b'["\xff"]', b"[7]", b""])
def test_a_file_that_cannot_be_read_costs_only_the_watches(tmp_path: Path, content: bytes) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("t", 1)
            await place.watch({"t": {}})
        (tmp_path / FILE).write_bytes(content)
        async with serving(tmp_path) as place:
            assert place.app.metrics.watch_sessions == 0
            assert (await read_to(await place.stream(await place.watch({"t": {}})), "t", 1))[0]

    run(scenario)
