"""Watching over a real socket."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest
from tests.unit.api.streaming import EventReader, Place, run, serving, until

from topics.api import live
from topics.api.watch_room import PLACE_BYTES
from topics.engine.watch.event_id import decode_event_id, encode_event_id


async def skip_to(stream: EventReader, kind: str) -> Any:  # noqa: ANN401 - a frame's data
    while True:
        event = await stream.next()
        if event.kind == kind:
            return event.data
        assert event.kind, f"the stream ended before {kind}"


def test_a_watch_gets_the_backlog_then_what_comes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("orders", 1, 2)
            stream = await place.stream(await place.watch({"orders": {"from_seq": 0}}))
            assert stream.status == 200
            assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert stream.headers["cache-control"] == "no-store"
            assert stream.headers["x-accel-buffering"] == "no"
            assert await stream.next_text() == "retry: 2000"
            backlog = await stream.next()
            assert (backlog.kind, backlog.seqs) == ("record", [1, 2])
            assert {k: v for k, v in backlog.data.items() if k != "records"} == {
                "topic": "orders", "from_seq": 0, "to_seq": 2, "head_seq": 2
            }  # fmt: skip
            assert decode_event_id(backlog.id) == {"orders": 2}
            caught_up = await stream.next()
            assert caught_up.kind == "caught-up"
            assert caught_up.data == {"topic": "orders", "head_seq": 2}
            await place.append("orders", {"line": "one\ntwo"})
            news = await stream.next()
            assert news.seqs == [3]
            assert news.data["records"][0]["data"] == {"line": "one\ntwo"}

    run(scenario)


def test_line_ends_between_tokens_do_not_cut_a_frame(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            body = b'{"records":[{"data":{\r\n"a":\n[1,\r2]}}]}'
            reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
            writer.write(place._head("POST", "/v0/topics/t", len(body), {}) + body)
            assert b" 201 " in await reader.read()
            stream = await place.stream(await place.watch({"t": {}}))
            assert (await stream.next()).data["records"][0]["data"] == {"a": [1, 2]}
            writer.close()

    run(scenario)


def test_a_stream_goes_on_where_the_session_stands_or_where_the_id_says(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("a", 1)
            await place.append("b", 1)
            url = await place.watch({"a": {}, "b": {"tail": True}})
            first = await place.stream(url)
            await skip_to(first, "caught-up")
            await skip_to(first, "caught-up")
            await place.append("b", 2)
            event = await first.next()
            assert decode_event_id(event.id) == {"a": 1, "b": 2}
            await first.close()
            await until(lambda: place.app.metrics.sse_connections == 0)
            await place.append("a", 2)

            held = await place.stream(url)
            assert (await skip_to(held, "record"))["from_seq"] == 1
            await held.close()
            await until(lambda: place.app.metrics.sse_connections == 0)

            back = encode_event_id({"a": 0, "b": 99}).decode()
            rewound = await place.stream(url, Last_Event_ID=back)
            record = await rewound.next()
            assert (record.data["topic"], record.seqs) == ("a", [1, 2])
            assert decode_event_id(record.id) == {"a": 2, "b": 2}

    run(scenario)


def test_a_bad_id_and_a_missing_accept_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("t", 1)
            url = await place.watch({"t": {}})
            assert (await place.stream(url, Last_Event_ID="!!")).status == 400
            status, answer = await place.call("GET", url)
            assert (status, answer["error"]["code"]) == (406, "not_acceptable")
            assert (await place.call("GET", "/v0/watch/wid_no", Accept="text/event-stream; q=1"))[
                0
            ] == 404

    run(scenario)


def test_lost_records_are_announced_at_connect_and_while_live(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.call("PUT", "/v0/topics/t", {"cap_records": 2})
            await place.append("t", 1, 2, 3, 4, 5)
            stream = await place.stream(await place.watch({"t": {"from_seq": 1}}))
            gap = await stream.next()
            assert gap.kind == "tombstone"
            assert gap.data == {
                "topic": "t", "reason": "from_seq_too_old", "gap_from": 2, "gap_to": 3,
                "earliest_seq": 4, "head_seq": 5,
            }  # fmt: skip
            assert decode_event_id(gap.id) == {"t": 3}
            assert (await stream.next()).seqs == [4, 5]
            await skip_to(stream, "caught-up")
            await place.append("t", 6, 7, 8)  # more than the cap holds, in one write
            gap = await stream.next()
            assert (gap.data["reason"], gap.data["gap_from"], gap.data["gap_to"]) == ("cap", 6, 6)
            assert (await stream.next()).seqs == [7, 8]

    run(scenario)


def test_a_deleted_topic_is_told_and_its_next_life_followed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("t", 1, 2, 3)
            url = await place.watch({"t": {"from_seq": 0}})
            stream = await place.stream(url)
            old = await stream.next()
            await skip_to(stream, "caught-up")
            await place.call("DELETE", "/v0/topics/t")
            event = await stream.next()
            assert event.kind == "topic-deleted"
            assert event.data == {"topic": "t", "head_seq": 3, "reason": "deleted"}
            await place.append("t", "again", "and again", "and more", "more still")
            while event.kind != "record":  # the empty topic may be caught up with first
                event = await stream.next()
            assert event.seqs == [1, 2, 3, 4]
            await stream.close()
            await until(lambda: place.app.metrics.sse_connections == 0)

            # An id of the old life, although the new one is longer: nothing of it is skipped.
            back = await place.stream(url, Last_Event_ID=old.id)
            assert (await back.next()).kind == "topic-deleted"
            assert (await back.next()).seqs == [1, 2, 3, 4]
            await back.close()
            await until(lambda: place.app.metrics.sse_connections == 0)
            exact = await place.stream(url, Last_Event_ID=event.id)
            assert (await exact.next()).kind == "caught-up"

    run(scenario)


def test_a_cursor_beyond_the_head_hears_whether_the_topic_began_anew(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("t", *range(9))
            await place.call("DELETE", "/v0/topics/t")
            await place.append("t", 1, 2)
            stream = await place.stream(await place.watch({"t": {"from_seq": 9}}))
            gap = (await stream.next()).data
            assert (gap["reason"], gap["gap_from"], gap["gap_to"]) == ("recreated", 1, 2)
            assert (await stream.next()).seqs == [1, 2]
            stream = await place.stream(await place.watch({"t": {"from_seq": 10}}))
            gap = (await stream.next()).data
            assert (gap["reason"], gap["gap_from"], gap["gap_to"]) == ("beyond_head", 3, 10)
            assert (await stream.next()).kind == "caught-up"
            await place.append("t", 3)
            frame = await stream.next()
            assert (frame.seqs, frame.data["from_seq"]) == ([3], 2)

    run(scenario)


def test_a_pattern_sees_present_and_future_topics(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("log.a", 1)
            await place.append("other", 1)
            url = await place.watch({"log.*": {"tail": True}})
            stream = await place.stream(url)
            assert (await skip_to(stream, "caught-up"))["topic"] == "log.a"
            await place.append("log.b", "new")
            record = await skip_to(stream, "record")
            assert (record["topic"], record["records"][0]["data"]) == ("log.b", "new")
            await stream.close()
            await until(lambda: place.app.metrics.sse_connections == 0)
            await place.append("log.c", "while away")
            again = await place.stream(url)
            assert (await skip_to(again, "record"))["topic"] == "log.c"

    run(scenario)


def test_filters_and_projections_hold_for_a_watch(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("t", 1, tag="x:1")
            await place.append("t", 2, tag="y", node="me")
            await place.append("t", 3, tag="x:2", meta={"k": 1})
            url = await place.watch(
                {"t": {}}, match=["tag", "Glob", "x*"], include_tags=True, include_meta=False,
                include_data=False,
            )  # fmt: skip
            records = (await (await place.stream(url)).next()).data["records"]
            assert [{k for k in r if k != "$ts"} for r in records] == [{"$seq", "$tag"}] * 2
            own = await place.stream(await place.watch({"t": {}}, node=["me"]))
            assert (await own.next()).seqs == [1, 3]

    run(scenario)


def test_bad_watches_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, max_watch_sessions=2) as place:

            async def refused(body: Any, query: str = "") -> tuple[int, str]:  # noqa: ANN401 - any JSON
                status, answer = await place.call("POST", "/v0/watch" + query, body)
                return status, answer["error"]["code"]

            assert await refused({"topics": {}}) == (400, "invalid_request")
            assert await refused({}) == (400, "invalid_request")
            assert await refused({"topics": {"no": {}}}) == (404, "topic_not_found")
            assert await refused({"topics": {"b d": {}}}) == (400, "invalid_request")
            assert await refused({"topics": {"a*": {}}, "consistency": "x"}) == (
                400,
                "invalid_request",
            )
            many: dict[str, Any] = {f"t{n}": {} for n in range(257)}
            assert await refused({"topics": many}) == (400, "invalid_request")
            await place.append("t", 1)
            status, answer = await place.call(
                "POST", "/v0/watch?lenient=true", {"topics": {"no": {}, "t": {"tail": True}}}
            )
            assert status == 200
            assert answer["topics"] == {"t": {"from_seq": 1, "head_seq": 1, "earliest_seq": 1}}
            assert answer["session_ttl_ms"] == 300_000
            assert answer["wid"].startswith("wid_")
            assert "server_total_ms" in answer["performance"]
            await place.watch({"t": {}})
            assert await refused({"topics": {"t": {}}}) == (429, "throttled")

    run(scenario)


def test_only_the_creating_key_opens_a_watch(tmp_path: Path) -> None:
    keys = "maker:rw,other:r,narrow:r:log."

    async def scenario() -> None:
        async with serving(tmp_path, keys=keys, max_sse_connections_per_key=1) as place:

            def bearer(key: str) -> dict[str, str]:
                return {"Authorization": f"Bearer {key}"}

            body: Any = {"topics": {"t": {}}}
            await place.call("POST", "/v0/topics/t", {"records": [{"data": 1}]}, **bearer("maker"))
            assert (await place.call("POST", "/v0/watch", body, **bearer("narrow")))[0] == 403
            pattern: Any = {"topics": {"lo*": {}}}
            assert (await place.call("POST", "/v0/watch", pattern, **bearer("narrow")))[0] == 403
            _, made = await place.call("POST", "/v0/watch", body, **bearer("maker"))
            url = made["stream_url"]
            assert (await place.stream(url)).status == 401
            other = await place.stream(url, Authorization="Bearer other")
            assert other.status == 401
            _, given = await place.call("POST", "/v0/tickets", {}, **bearer("maker"))
            stream = await place.stream(f"{url}?ticket={given['ticket']}")
            assert (await stream.next()).seqs == [1]
            _, more = await place.call("POST", "/v0/watch", body, **bearer("maker"))
            assert (await place.stream(more["stream_url"] + "?token=maker")).status == 429
            await stream.close()
            await until(lambda: place.app.metrics.sse_connections == 0)
            assert (await place.stream(more["stream_url"] + "?token=maker")).status == 200

    run(scenario)


def test_a_second_stream_of_a_watch_replaces_the_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("t", 1)
            url = await place.watch({"t": {}})
            first = await place.stream(url)
            await skip_to(first, "caught-up")
            second = await place.stream(url)
            assert (await first.next()).data["code"] == "replaced"
            assert await first.next_text() == ""
            await skip_to(second, "caught-up")
            await place.append("t", 2)
            assert (await second.next()).seqs == [2]
            assert place.app.metrics.sse_connections == 1

    run(scenario)


def test_a_stopping_server_tells_its_readers_when_to_come_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("t", 1)
            stream = await place.stream(await place.watch({"t": {"tail": True}}))
            await skip_to(stream, "caught-up")
            await place.server.stop()
            event = await stream.next()
            assert event.data["code"] == "shutting_down"
            assert event.data["retry_after_ms"] > 0
            assert await stream.next_text() == ""

    run(scenario)


def test_idle_streams_get_heartbeats_without_an_id(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("t", 1)
            stream = await place.stream(await place.watch({"t": {"tail": True}}, heartbeat_ms=1))
            await skip_to(stream, "caught-up")
            assert (await stream.next_text()).startswith(": hb 1")

    run(scenario)


def test_a_watch_without_a_stream_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, session_ttl_ms=100) as place:
            await place.append("t", 1)
            url = await place.watch({"t": {}})
            assert place.app.metrics.watch_sessions == 1
            await until(lambda: place.app.metrics.watch_sessions == 0)
            assert (await place.stream(url)).status == 404

    run(scenario)


def test_of_several_patterns_of_a_name_the_last_one_counts(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, max_watch_topics=3) as place:
            for name in ("a.1", "a.2", "b.1"):
                await place.append(name, 1, 2)
            patterns = {"b*": {}, "*": {"tail": True}, "a.2*": {"from_seq": 1}}
            _, made = await place.call("POST", "/v0/watch", {"topics": patterns})
            stands = {name: state["from_seq"] for name, state in made["topics"].items()}
            assert stands == {"a.1": 2, "a.2": 1, "b.1": 2}
            await place.append("c.1", 1)
            status, refusal = await place.call("POST", "/v0/watch", {"topics": {"*": {}}})
            assert (status, refusal["error"]["detail"]["limit"]) == (429, "max_watch_topics")

    run(scenario)


def test_many_watchers_of_a_new_topic_meet_it_some_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MEETINGS_A_TURN", 2)

    async def scenario() -> None:
        async with serving(tmp_path) as place:
            streams = [await place.stream(await place.watch({"*": {}})) for _ in range(5)]
            engine = place.app.engine
            engine.create_topic("a", {})
            engine.create_topic("b", {})
            met: list[int] = []
            while not met or met[-1] < 10:
                await asyncio.sleep(0)
                met.append(sum(engine.topic(name).watchers for name in "ab"))
            assert all(now - before <= 2 for before, now in itertools.pairwise(met))
            await place.append("b", 1)
            for stream in streams:
                while (event := await stream.next()).kind != "record":
                    pass
                assert event.data["topic"] == "b"

    run(scenario)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def ask_for_watch(place: Place, key: str, **fields: Any) -> str:  # noqa: ANN401 - any JSON
    """Make a watch of `t`, or return the limit that it would pass."""
    body = {"topics": {"t": {}}, **fields}
    status, answer = await place.call("POST", "/v0/watch", body, **bearer(key))
    return "" if status == 200 else str(answer["error"]["detail"]["limit"])


def test_one_key_cannot_use_up_the_watches_of_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        limits = {"max_watch_sessions_per_key": 2, "session_ttl_ms": 100}
        async with serving(tmp_path, keys="one,other", **limits) as place:
            await place.call("PUT", "/v0/topics/t", {}, **bearer("one"))
            assert [await ask_for_watch(place, "one") for _ in range(3)] == [
                "", "", "max_watch_sessions_per_key"
            ]  # fmt: skip
            assert await ask_for_watch(place, "other") == ""
            await until(lambda: place.app.metrics.watch_sessions == 0)
            assert await ask_for_watch(place, "one") == "", "those that ended make room"

    run(scenario)


def test_what_watches_keep_is_bounded_by_key_and_in_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        limits = {"max_watch_bytes_per_key": 400_000, "max_watch_bytes": 600_000}
        async with serving(tmp_path, keys="one,other", session_ttl_ms=100, **limits) as place:
            await place.call("PUT", "/v0/topics/t", {}, **bearer("one"))
            room, node = place.app.watches.room, "n" * 60_000
            for key, most, limit in [
                ("one", 400_000, "max_watch_bytes_per_key"), ("other", 600_000, "max_watch_bytes")
            ]:  # fmt: skip
                made = 0
                while (refusal := await ask_for_watch(place, key, node=node)) == "":
                    made += 1
                    assert room.used_bytes <= most
                assert refusal == limit
                assert made == 2 if key == "one" else made == 1
            await until(lambda: place.app.metrics.watch_sessions == 0)
            assert room.used_bytes == 0

    run(scenario)


def test_a_pattern_that_finds_topic_after_topic_stops_at_what_watches_may_keep(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, max_watch_bytes=8_000) as place:
            stream = await place.stream(await place.watch({"*": {}}))
            for n in range(12):
                await place.append(f"t{n}", n)
            events = [await stream.next() for _ in range(13)]
            while (error := events[-1]).kind != "error":
                events.append(await stream.next())
            assert "max_watch_bytes" in error.data["error"]
            (session,) = place.app.watches._by_wid.values()
            assert place.app.watches.room.used_bytes <= 8_000 + PLACE_BYTES
            assert 0 < len(session.watcher.places) < 12

    run(scenario)
