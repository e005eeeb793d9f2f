"""Jobs pushed to workers."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.unit.api.streaming import EventReader, Place, run, serving, until

from topics.engine.topics.topic import Topic
from topics.model.queues import Claimed, ClaimRequest


async def new_queue(place: Place, *data: Any, **config: Any) -> None:  # noqa: ANN401 - any JSON
    await place.call("PUT", "/v0/topics/q", {"type": "queue", **config})
    if data:
        await place.append("q", *data)


async def counts(place: Place) -> tuple[int, int]:
    _, state = await place.call("GET", "/v0/topics/q")
    return state["queue"]["ready"], state["queue"]["in_flight"]


async def next_job(stream: EventReader) -> dict[str, Any]:
    event = await stream.next()
    assert event.kind == "job", event.data
    assert event.id == str(event.data["$seq"])
    job: dict[str, Any] = event.data
    return job


async def settle(place: Place, word: str, job: dict[str, Any], **more: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    body = {"node": "w", "seqs": [job["$seq"]], "lease_ids": [job["lease_id"]], **more}
    status, answer = await place.call("POST", f"/v0/topics/q/{word}", body)
    assert (status, answer["skipped"]) == (200, [])
    return dict(answer)


def test_a_worker_holds_up_to_max_jobs_and_gives_the_rest_back_when_it_leaves(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await new_queue(place, "a", "b", "c")
            stream = await place.stream("/v0/topics/q/work?node=w&max=2&lease_ms=20000")
            first, second = await next_job(stream), await next_job(stream)
            assert (first["topic"], first["$seq"], first["data"]) == ("q", 1, "a")
            assert first["deliveries"] == 1
            assert first["deadline"] > first["$ts"]
            assert await counts(place) == (1, 2)
            await settle(place, "ack", first)
            third = await next_job(stream)
            assert third["$seq"] == 3
            await settle(place, "nack", second, delay_ms=60_000)
            await place.append("q", "d")
            assert (await next_job(stream))["data"] == "d"
            await stream.close()
            await until(lambda: place.app.metrics.sse_connections == 0)
            assert await counts(place) == (2, 0)
            again = await place.stream("/v0/topics/q/work?node=v&max=9")
            assert [(await next_job(again))["deliveries"] for _ in range(2)] == [2, 2]

    run(scenario)


def test_a_job_that_is_pushed_comes_when_the_letters_before_it_can_be_read(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await new_queue(place, "poison", "good", max_deliveries=1, dead_letter="dead")
            stream = await place.stream("/v0/topics/q/work?node=w")
            job = await next_job(stream)
            await settle(place, "nack", job)
            assert (await next_job(stream))["data"] == "good"
            status, page = await place.call("POST", "/v0/topics/dead/diff", {})
            assert (status, [record["data"] for record in page["records"]]) == (200, ["poison"])

    run(scenario)


def test_jobs_are_pushed_as_they_come_and_go_to_one_worker_each(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await new_queue(place)
            url = "/v0/topics/q/work?node=w"
            streams = [await place.stream(url) for _ in range(3)]
            await place.append("q", 1, 2, 3, 4)
            jobs = [await next_job(stream) for stream in streams]
            assert sorted(job["$seq"] for job in jobs) == [1, 2, 3]
            assert await counts(place) == (1, 3)
            await settle(place, "ack", jobs[1])
            assert (await next_job(streams[1]))["$seq"] == 4

    run(scenario)


def test_an_expired_lease_frees_the_hand_and_returns_the_job(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, sweep_ms=20) as place:
            await new_queue(place, "only")
            stream = await place.stream("/v0/topics/q/work?node=w&lease_ms=100")
            assert (await next_job(stream))["deliveries"] == 1
            assert (await next_job(stream))["deliveries"] == 2

    run(scenario)


def test_claims_that_gather_are_pushed_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await new_queue(place, 1, 2, claim_jitter_ms=5)
            stream = await place.stream("/v0/topics/q/work?node=w&max=2")
            assert [(await next_job(stream))["$seq"] for _ in range(2)] == [1, 2]

    run(scenario)


def test_work_needs_a_queue_a_node_and_a_reader_of_streams(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("log", 1)
            await new_queue(place, 1)
            assert (await place.stream("/v0/topics/log/work?node=w")).status == 409
            assert (await place.stream("/v0/topics/none/work?node=w")).status == 404
            assert (await place.stream("/v0/topics/q/work")).status == 400
            assert (await place.stream("/v0/topics/q/work?node=w&max=0")).status == 400
            assert (await place.call("GET", "/v0/topics/q/work?node=w"))[0] == 406
            assert await counts(place) == (1, 0)

    run(scenario)


def test_the_end_of_a_queue_ends_its_workers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await new_queue(place, 1)
            stream = await place.stream("/v0/topics/q/work?node=w")
            await next_job(stream)
            await place.call("DELETE", "/v0/topics/q")
            assert (await stream.next()).data["code"] == "topic_not_found"
            assert await stream.next_text() == ""

    run(scenario)


def test_a_stopping_server_gives_back_what_its_workers_held(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await new_queue(place, 1, leases_durable=True, lease_ms=60_000)
            stream = await place.stream("/v0/topics/q/work?node=w")
            await next_job(stream)
            await place.server.stop()
            assert (await stream.next()).data["code"] == "shutting_down"
        async with serving(tmp_path) as place:
            assert await counts(place) == (1, 0)

    run(scenario)


def test_a_claim_that_first_has_to_forward_leaves_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await new_queue(place, "a")
            engine = place.app.engine
            claimers: list[int] = []
            real = engine.claim

            def claim(topic: Topic, request: ClaimRequest) -> Claimed:
                claimers.append(threading.get_ident())
                return real(topic, request)

            monkeypatch.setattr(engine, "claim", claim)
            monkeypatch.setattr(engine, "must_forward", lambda _: True)
            stream = await place.stream("/v0/topics/q/work?node=w")
            assert (await next_job(stream))["data"] == "a"
            assert claimers
            assert threading.get_ident() not in claimers

    run(scenario)


async def ask_to_claim(place: Place) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Begin a claim and leave its answer unread."""
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    place.writers.append(writer)
    body = b'{"node":"w"}'
    lines = ["POST /v0/topics/q/claim HTTP/1.1", f"Host: 127.0.0.1:{place.port}"]
    lines += ["Content-Type: application/json", f"Content-Length: {len(body)}", "", ""]
    writer.write("\r\n".join(lines).encode() + body)
    return reader, writer


def test_who_leaves_before_the_window_ends_is_dealt_no_job(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await new_queue(place, "a", claim_jitter_ms=300)
            _, writer = await ask_to_claim(place)
            await until(lambda: any(not c.is_idle for c in place.app.connections))
            writer.transport.abort()
            status, answer = await place.call("POST", "/v0/topics/q/claim", {"node": "later"})
            assert (status, answer["count"]) == (200, 1)

    run(scenario)
