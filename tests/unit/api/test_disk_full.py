"""What a client is told when room or descriptors run out: what to do, and only what it may see."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.api.test_crowd import run
from tests.unit.api.test_server import READY, Client
from tests.unit.api.wire import post

from topics.api.server import Server
from topics.storage.disk.disk import Room
from topics.storage.disk.local_disk import RESERVED_DESCRIPTORS

BODY = b'{"records":[{"data":1}]}'


def keyed(request: bytes, key: bytes) -> bytes:
    return request.replace(b"\r\n", b"\r\nAuthorization: Bearer %b\r\n" % key, 1)


def test_records_are_refused_with_507_and_the_largest_topics_one_may_see(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        log = server.app.ready_log
        for topic in ("orders.a", "orders.b", "secret"):
            await log.append(topic, [{"data": "x" * 1_000}])
        engine = log.log.engine
        engine.disk.room = lambda: Room(5 << 20, 1 << 30)  # type: ignore[method-assign]
        engine.reserve.give()
        engine.look_at_room()
        async with Client(server) as client:
            answer = await client.ask(keyed(post("/v0/topics/orders.a", BODY), b"some"))
            error = json.loads(answer.body)["error"]
            assert (answer.status, error["code"]) == (507, "disk_full")
            assert sorted(error["detail"].pop("largest_topics")) == ["orders.a", "orders.b"]
            assert error["detail"] == {
                "reason": "disk_full",
                "free_bytes": 5 << 20,
                "needed_bytes": (16 + 64) << 20,
            }
            assert "5.0 MiB of 1024 MiB free" in error["message"]
            assert "secret" not in error["message"]
            answer = await client.ask(keyed(post("/v0/topics/secret", BODY), b"all"))
            assert "secret" in json.loads(answer.body)["error"]["message"]
            answer = await client.ask(
                keyed(post("/v0/topics/orders.a/delete", b'{"before_seq":2}'), b"all")
            )
            assert json.loads(answer.body)["deleted"] == 1
            assert json.loads((await client.ask(READY)).body)["disk_full"] is True
            engine.disk.room = lambda: Room(1 << 30, 1 << 30)  # type: ignore[method-assign]
            answer = await client.ask(keyed(post("/v0/topics/orders.a", BODY), b"some"))
            assert answer.status == 200

    run(tmp_path, scenario, most=0, keys="some:rw:orders.,all")


def test_a_read_that_finds_no_descriptor_is_told_to_come_again_and_the_next_one_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(server: Server) -> None:
        log = server.app.ready_log
        await log.append("t", [{"data": n} for n in range(5)])
        await log.run(log.log.checkpoint)
        engine = log.log.engine
        engine.stores.maps.release_all()
        refused = [RESERVED_DESCRIPTORS + 2]  # the reserve, and the second try
        real = os.open

        def no_more(*given: Any, **named: Any) -> int:  # noqa: ANN401 - handed on
            if refused[0] and str(given[0]).endswith(".data"):
                refused[0] -= 1
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return real(*given, **named)

        monkeypatch.setattr(os, "open", no_more)
        async with Client(server) as client:
            answer = await client.ask(post("/v0/topics/t/diff", b"{}"))
            error = json.loads(answer.body)["error"]
            assert (answer.status, error["code"]) == (503, "not_ready")
            assert error["detail"] == {"reason": "too_many_files"}
            assert answer.headers["retry-after"] == "1"
            assert str(tmp_path) not in error["message"]
            answer = await client.ask(post("/v0/topics/t/diff", b"{}"))
            assert len(json.loads(answer.body)["records"]) == 5
            assert (await client.ask(READY)).status == 200

    run(tmp_path, scenario, most=0)
