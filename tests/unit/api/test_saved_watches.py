"""Watches that outlive the server."""

import asyncio
import itertools
from pathlib import Path

import msgspec
import pytest
from tests.unit.api.streaming import EventReader, Place, run, serving, until

from topics.api import watch_sessions
from topics.api.saved_watches import HEADER as HEADER_FORMAT
from topics.api.saved_watches import MAGIC, VERSION, encode_entry
from topics.engine.watch.event_id import decode_event_id

FILE = "meta/watches.log"
OLD_FILE = "meta/watches.json"
HEADER = HEADER_FORMAT.pack(MAGIC, VERSION)


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


@pytest.mark.parametrize("name", [FILE, OLD_FILE])
@pytest.mark.parametrize(
    "content",
    [b'[{"wid":', b'["\xff"]', b"[7]", b"", b"TPWL", HEADER + encode_entry(b"[7]"), HEADER + b"x"],
)
def test_a_file_that_cannot_be_read_costs_only_the_watches(
    tmp_path: Path, name: str, content: bytes
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("t", 1)
            await place.watch({"t": {}})
        (tmp_path / FILE).unlink()
        (tmp_path / name).write_bytes(content)
        async with serving(tmp_path) as place:
            assert place.app.metrics.watch_sessions == 0
            assert (await read_to(await place.stream(await place.watch({"t": {}})), "t", 1))[0]

    run(scenario)


def test_watches_that_an_earlier_version_saved_are_taken_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("t", 1, 2)
            life = place.app.engine.topic("t").id
        (tmp_path / FILE).unlink()
        body = {"topics": {"t": {"from_seq": 0, "tail": False}}, "heartbeat_ms": 15000}
        stands = {"life": life, "first_life": life, "seq": 1, "asked": True, "by_pattern": False}
        watch = {"wid": "wid_old", "caller": "anonymous", "body": body}
        old = [{**watch, "places": [{"name": "t", **stands}]}]
        (tmp_path / OLD_FILE).write_bytes(msgspec.json.encode(old))
        async with serving(tmp_path):
            pass
        assert not (tmp_path / OLD_FILE).exists()
        async with serving(tmp_path) as place:
            stream = await place.stream("/v0/watch/wid_old")
            assert (await read_to(stream, "t", 2))[0] == [2]

    run(scenario)


def test_a_watch_that_is_made_or_ends_costs_one_entry_and_not_the_file(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, session_ttl_ms=60_000) as place:
            watches = place.app.watches
            await place.append("t", 1)
            await place.watch({"t": {}})
            await until(lambda: not watches._made and (tmp_path / FILE).exists())
            async with watches._writing:
                before = (tmp_path / FILE).read_bytes()
            await place.watch({"t": {"tail": True}})
            await until(lambda: not watches._made)
            async with watches._writing:
                after = (tmp_path / FILE).read_bytes()
            assert after.startswith(before)
            assert len(before) < len(after) < len(before) + 400
            for session in list(watches._by_wid.values()):
                session.idle_since_s -= 61
            await until(lambda: place.app.metrics.watch_sessions == 0)
            await until(lambda: not watches._ended)
            async with watches._writing:
                assert (tmp_path / FILE).read_bytes().startswith(after)
        assert (tmp_path / FILE).read_bytes() == HEADER, "a stop writes it anew"

    run(scenario)


def test_watches_are_taken_up_some_a_turn_and_at_once_when_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_sessions, "RESTORED_AT_ONCE", 2)

    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("t", 1)
            urls = [await place.watch({"t": {}}) for _ in range(9)]
        async with serving(tmp_path) as place:
            watches = place.app.watches
            assert place.app.metrics.watch_sessions == 9
            assert watches._saved is not None
            found = watches._saved.load()
            for session in list(watches._by_wid.values()):
                watches._drop(session)
            restoring = asyncio.ensure_future(watches.restore(watches._saved, found))
            counts = [0]
            while not restoring.done():
                await asyncio.sleep(0)
                counts.append(len(watches._by_wid))
                if counts[-1] == 2:
                    last = urls[-1].rpartition("/")[2]
                    assert watches.get(last, place.app.keyring.anonymous).wid == last
            assert all(now - before <= 3 for before, now in itertools.pairwise(counts))
            assert counts[-1] == 9

    run(scenario)
