"""What a full disk is to a client: 507, what to do, and only the names it may see."""

import json
from pathlib import Path

from tests.unit.api.test_crowd import run
from tests.unit.api.test_server import READY, Client
from tests.unit.api.wire import post

from topics.api.server import Server
from topics.storage.disk.disk import Room

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
