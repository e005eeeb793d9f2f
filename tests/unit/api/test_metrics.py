"""Metrics of a real log: right numbers, only what the key may see, bounded."""

from pathlib import Path

import msgspec
import pytest
from tests.unit.api.test_exposition import parse
from tests.unit.api.test_server import BODY, Client, run
from tests.unit.api.wire import HOST, post

from topics.api import metrics as module
from topics.api.server import Server


def scrape(*lines: bytes) -> bytes:
    return (
        b"GET /v0/metrics HTTP/1.1\r\n"
        + HOST
        + b"".join(line + b"\r\n" for line in lines)
        + b"\r\n"
    )


async def figures(client: Client, *lines: bytes) -> dict[str, float]:
    """Scrape; the key is the name with its labels in brackets."""
    answer = await client.ask(scrape(*lines))
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = parse(answer.body.decode())
    return {name + str([v for _, v in labels] or ""): v for (name, labels), v in found.items()}


def test_the_numbers_are_those_of_the_log(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        async with Client(server) as client:
            await client.ask(post("/v0/topics/a", b'{"records":[{"data":1},{"data":2},{"data":3}],'
                                  b'"config":{"durability":"fsync","cap_records":2}}'))  # fmt: skip
            await client.ask(post("/v0/topics/a/diff", b"{}"))
            found = await figures(client)
            assert found["topics_topics"] == 1
            assert found["topics_topics_by_class['fsync']"] == 1
            assert found["topics_records_live"] == 2
            assert found["topics_records_appended_total"] == 3
            assert found["topics_records_evicted_total"] == 1
            assert found["topics_records_delivered_total"] == 2
            assert found["topics_tombstones_total"] == 1
            assert found["topics_topic_head_seq['a']"] == 3
            assert found["topics_topic_earliest_seq['a']"] == 2
            assert found["topics_at_risk_records"] == 0, "fsync leaves nothing at risk"
            assert found["topics_ready"] == found["topics_recovery_progress"] == 1
            assert found["topics_wal_fsyncs_total"] >= 1
            assert found["topics_wal_fsync_latency_us_count"] == found["topics_wal_fsyncs_total"]
            assert found["topics_wal_read_only"] == 0
            label = "topics_request_latency_us_count['POST /v0/topics/:topic', '201']"
            assert found[label] == 1

    run(tmp_path, scenario)


def test_what_is_not_synced_is_at_risk_until_it_is(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        engine = server.app.engine
        async with Client(server) as client:
            await client.ask(post("/v0/topics/a", BODY))  # waits for its reservation, so is synced
            shard = engine.shard_of(engine.topic("a"))
            with shard.commit._sync_lock:  # nobody syncs now
                for _ in range(3):
                    assert (await client.ask(post("/v0/topics/a", BODY))).status == 200
                assert (await figures(client))["topics_at_risk_records"] == 3
            engine.sync()
            assert (await figures(client))["topics_at_risk_records"] == 0

    run(tmp_path, scenario)


def test_evictions_are_counted_also_when_their_topic_is_gone(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        async with Client(server) as client:
            await client.ask(post("/v0/topics/a", b'{"records":[{"data":1},{"data":2}],'
                                  b'"config":{"cap_records":1}}'))  # fmt: skip
            await client.ask(b"DELETE /v0/topics/a HTTP/1.1\r\n" + HOST + b"\r\n")
            found = await figures(client)
            assert found["topics_topics"] == 0
            assert found["topics_records_evicted_total"] == 1

    run(tmp_path, scenario)


def test_a_key_sees_the_series_of_its_own_topics(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        owner, reader = b"Authorization: Bearer owner", b"Authorization: Bearer reader"
        async with Client(server) as client:
            for name in ("mine.a", "theirs.b"):
                await client.ask(post(f"/v0/topics/{name}", BODY, owner))
            found = await figures(client, reader)
            assert found["topics_topics"] == 2
            assert "topics_topic_head_seq['mine.a']" in found
            assert not any("theirs" in key for key in found)
            assert (await client.ask(scrape())).status == 401

    run(tmp_path, scenario, keys="owner,reader:r:mine.")


def test_series_of_topics_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NAMED", 2)

    async def scenario(server: Server) -> None:
        async with Client(server) as client:
            for number in (1, 2):
                await client.ask(post(f"/v0/topics/t{number}", BODY))
            assert (await figures(client))["topics_topic_metrics_truncated"] == 0
            await client.ask(post("/v0/topics/t3", BODY))
            found = await figures(client)
            assert found["topics_topic_metrics_truncated"] == 1
            heads = [key for key in found if key.startswith("topics_topic_head_seq")]
            assert heads == ["topics_topic_head_seq['t1']", "topics_topic_head_seq['t2']"]

    run(tmp_path, scenario)


def test_json_is_there_for_who_asks(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        async with Client(server) as client:
            answer = await client.ask(scrape(b"Accept: application/json"))
            found = msgspec.json.decode(answer.body)
            assert answer.headers["content-type"] == "application/json"
            assert found["topics_topics"] == 0
            assert "server_total_ms" in found["performance"]

    run(tmp_path, scenario)


def test_before_the_log_is_replayed_the_progress_is_shown(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        server.app.replay_progress = 0.5
        async with Client(server) as client:
            found = await figures(client)
            assert (found["topics_ready"], found["topics_recovery_progress"]) == (0, 0.5)
            assert "topics_topics" not in found

    run(tmp_path, scenario, replay=False)
