"""A large batch is written beside the event loop, too, with the answer that any other gets."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.api.streaming import Place, serving

from topics.aio import GATHER_BYTES
from topics.api import append as module

RECORDS = [{"data": "x" * 500, "tag": f"t{n % 7}"} for n in range(200)]
assert len(RECORDS) * 500 > GATHER_BYTES


@pytest.fixture
def read_aside(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], Any]]:
    """Take bodies of this size for large; tell what was done beside the loop."""
    monkeypatch.setattr(module, "LARGE_BODY_BYTES", GATHER_BYTES)
    return []


def count_aside(place: Place, done: list[Callable[[], Any]]) -> None:
    run = place.app.aside.run

    def count(work: Callable[[], Any]) -> asyncio.Future[Any]:
        done.append(work)
        return run(work)

    place.app.aside.run = count  # type: ignore[method-assign]


@pytest.mark.parametrize("writes_aside", [False, True])
@pytest.mark.parametrize("config", [None, {}, {"partitions": 3}], ids=["new", "log", "parts"])
def test_a_large_body_is_written_as_any_other(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read_aside: list[Callable[[], Any]],
    config: dict[str, int] | None,
    *,
    writes_aside: bool,
) -> None:
    if writes_aside:
        monkeypatch.setattr(module, "WRITE_BYTES", GATHER_BYTES)

    async def scenario() -> None:
        async with serving(tmp_path) as place:
            count_aside(place, read_aside)
            if config is not None:
                await place.call("PUT", "/v0/topics/a", config)
            body = {"records": RECORDS, "idempotency_key": "k"}
            status, answer = await place.call("POST", "/v0/topics/a", body)
            assert (status, answer["count"]) == (201 if config is None else 200, len(RECORDS))
            status, answer = await place.call("POST", "/v0/topics/a", body)
            assert (status, answer["deduped"]) == (200, True)
            wrong = {"records": [*RECORDS, {"date": 1}]}
            status, answer = await place.call("POST", "/v0/topics/a", wrong)
            assert (status, answer["error"]["code"]) == (400, "invalid_request")
            status, answer = await place.call("GET", "/v0/topics/a")
            assert answer["count"] == len(RECORDS)
            assert len(read_aside) == 3 + 2 * (writes_aside and not (config or {}))

    asyncio.run(scenario())
