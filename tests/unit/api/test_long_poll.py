"""A diff that waits."""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.api.streaming import Place, run, serving, until

from topics.engine.routers.table import Routers
from topics.engine.topics.topic import Topic


async def poll(place: Place, **body: Any) -> tuple[int, Any]:  # noqa: ANN401 - any JSON
    return await place.call("POST", "/v0/topics/t/diff", body)


def test_a_wait_ends_with_the_next_record(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("t", 1)
            waiting = asyncio.ensure_future(poll(place, from_seq=1, wait_ms=30_000))
            topic = place.app.engine.topic("t")
            await until(lambda: topic.watchers == 1)
            await place.append("t", 2)
            status, page = await waiting
            assert (status, [r["$seq"] for r in page["records"]]) == (200, [2])
            assert page["performance"]["wait_ms"] > 0
            assert topic.watchers == 0

    run(scenario)


def test_what_is_there_is_answered_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("t", 1)
            _, page = await poll(place, from_seq=0, wait_ms=30_000)
            assert page["next_from_seq"] == 1
            assert "wait_ms" not in page["performance"]

    run(scenario)


def test_a_wait_is_over_in_time_and_has_moved_past_what_was_filtered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("t", 1)
            waiting = asyncio.ensure_future(poll(place, from_seq=1, wait_ms=400, match="x"))
            await until(lambda: place.app.engine.topic("t").watchers == 1)
            await place.append("t", 2, tag="y")
            _, page = await waiting
            assert page["records"] == []
            assert (page["next_from_seq"], page["caught_up"]) == (2, True)
            assert 350 < page["performance"]["wait_ms"] < 5_000

    run(scenario)


def test_a_wait_ends_when_the_topic_does(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("t", 1)
            waiting = asyncio.ensure_future(poll(place, from_seq=1, wait_ms=30_000))
            await until(lambda: place.app.engine.topic("t").watchers == 1)
            await place.call("DELETE", "/v0/topics/t")
            status, answer = await waiting
            assert (status, answer["error"]["code"]) == (404, "topic_not_found")

    run(scenario)


def test_a_wait_ends_when_the_server_stops_or_the_asker_leaves(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("t", 1)
            topic = place.app.engine.topic("t")
            leaver = asyncio.ensure_future(poll(place, from_seq=1, wait_ms=30_000))
            await until(lambda: topic.watchers == 1)
            sock = place.writers[-1].get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            place.writers[-1].transport.abort()
            await asyncio.wait([leaver])
            assert leaver.exception() is not None
            await until(lambda: topic.watchers == 0)
            waiting = asyncio.ensure_future(poll(place, from_seq=1, wait_ms=30_000))
            await until(lambda: topic.watchers == 1)
            await place.server.stop()
            status, page = await waiting
            assert (status, page["records"]) == (200, [])

    run(scenario)


def test_a_wait_for_what_routers_bring_leaves_the_bringing_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.call("PUT", "/v0/topics/s", {})
            await place.call("PUT", "/v0/topics/t", {})
            await place.call("PUT", "/v0/routers/r", {"source": "s", "dest": "t"})
            waiting = asyncio.ensure_future(poll(place, from_seq=0, wait_ms=30_000))
            await until(lambda: place.app.engine.topic("t").watchers == 1)
            bringers: list[int] = []
            real = Routers.forward_for

            def forward_for(
                routers: Routers, topic: Topic, *, is_enough: Callable[[], bool]
            ) -> None:
                bringers.append(threading.get_ident())
                real(routers, topic, is_enough=is_enough)

            monkeypatch.setattr(Routers, "forward_for", forward_for)
            await place.append("s", 1)
            _, page = await waiting
            assert len(page["records"]) == 1
            assert threading.get_ident() not in bringers

    run(scenario)
