"""Large bodies are read beside the event loop, and stay where they stand in their connection."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.api.streaming import run, serving

from topics.api import append
from topics.engine.request import Write, read_write

LARGE = "x" * append.LARGE_BODY_BYTES
RECORDS = [{"data": LARGE[: len(LARGE) // 2]}] * 3


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note which thread reads a body."""
    names: list[str] = []

    def noted(*args: Any, **named: Any) -> Write:  # noqa: ANN401 - whatever it takes
        names.append(threading.current_thread().name)
        return read_write(*args, **named)

    monkeypatch.setattr(append, "read_write", noted)
    return names


def test_a_large_body_is_read_by_another_thread(tmp_path: Path, readers: list[str]) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            for topic, partitions in (("new", 0), ("t", 0), ("p", 3)):
                if topic != "new":
                    config = {"partitions": partitions} if partitions else {}
                    await place.call("PUT", f"/v0/topics/{topic}", config)
                status, answer = await place.call(
                    "POST", f"/v0/topics/{topic}", {"records": RECORDS}
                )
                assert (status in (200, 201), answer["count"]) == (True, 3)
            wrong = {"records": RECORDS, "nodes": "n"}
            status, answer = await place.call("POST", "/v0/topics/t", wrong)
            assert (status, answer["error"]["detail"]["nearest"]) == (400, "node")
            assert len(readers) == 4
            assert not [name for name in readers if not name.startswith("topics-")]
            await place.call("POST", "/v0/topics/t", {"records": [{"data": 1}], "create": False})
            assert readers[4:] == ["MainThread"], "a small one is read at once"

    run(scenario)


def test_a_large_write_stays_before_the_small_one_behind_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            await place.append("t", 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
            for records in (RECORDS, [{"data": "small"}]):
                body = msgspec.json.encode({"records": records})
                writer.write(
                    b"POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\n"
                    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                    % len(body)
                    + body
                )
            firsts = []
            for _ in range(2):
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                firsts.append(msgspec.json.decode(await reader.readexactly(length))["first_seq"])
            assert firsts == [2, 5]
            writer.close()

    run(scenario)


def test_a_topic_that_gets_partitions_meanwhile_has_its_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as place:
            engine = place.app.engine

            def read_slowly(*args: Any, **named: Any) -> Write:  # noqa: ANN401 - whatever it takes
                if engine.find_partitioned("p") is None:
                    engine.create_topic("p", {"partitions": 2})
                return read_write(*args, **named)

            monkeypatch.setattr(append, "read_write", read_slowly)
            records = [{"data": LARGE[:600_000], "key": f"k{n}"} for n in range(4)]
            status, answer = await place.call("POST", "/v0/topics/p", {"records": records})
            assert status == 200, answer
            assert sum(part["count"] for part in answer["placements"]) == 4

    run(scenario)
