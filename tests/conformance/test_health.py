"""Health, readiness, metrics."""

import re

import pytest
from tests.conformance.api import Api, fresh, ok, refused
from tests.conformance.sse_client import Stream

NAMES = {
    "topics_topics",
    "topics_topics_by_class",
    "topics_routers",
    "topics_records_live",
    "topics_bytes_live",
    "topics_queue_topics",
    "topics_queue_leases_in_flight",
    "topics_sse_connections",
    "topics_watch_sessions",
    "topics_ready",
    "topics_recovery_progress",
    "topics_uptime_ms",
    "topics_topic_head_seq",
    "topics_topic_earliest_seq",
    "topics_topic_records_live",
    "topics_topic_bytes_live",
    "topics_topic_queue_ready",
    "topics_topic_queue_in_flight",
    "topics_topic_metrics_truncated",
    "topics_wal_frames_total",
    "topics_wal_batches_total",
    "topics_wal_fsyncs_total",
    "topics_wal_bytes_written_total",
    "topics_wal_rotations_total",
    "topics_wal_submit_full_total",
    "topics_wal_queue_depth",
    "topics_wal_queue_depth_peak",
    "topics_wal_read_only",
    "topics_wal_fsync_latency_us_bucket",
    "topics_wal_fsync_latency_us_sum",
    "topics_wal_fsync_latency_us_count",
    "topics_at_risk_records",
}
SAMPLE = re.compile(
    r'([a-zA-Z_:][\w:]*)(\{(?:\w+="(?:[^"\\]|\\.)*",?)*\})? ([-+.\deE]+|NaN|[+-]Inf)'
)


def samples(text: str) -> dict[str, float]:
    """Parse the text format strictly; the key is the name with its labels."""
    found = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample is not None, line
        key = f"{sample[1]}{sample[2] or ''}"
        assert key not in found, line
        found[key] = float(sample[3])
    return found


def metrics(api: Api) -> dict[str, float]:
    response = api.get("metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    return samples(response.text)


@pytest.mark.parametrize("path", ["/v0/health", "/healthz"])
def test_health_says_ok(api: Api, path: str) -> None:
    body = ok(api.client.get(path))
    assert body["status"] == "ok"
    assert isinstance(body["version"], str)
    assert isinstance(body["uptime_ms"], int)
    assert body["uptime_ms"] >= 0


@pytest.mark.parametrize("path", ["/v0/ready", "/readyz"])
def test_ready_says_ready(api: Api, path: str) -> None:
    api.create(fresh())
    body = ok(api.client.get(path))
    assert (body["status"], body["wal_replay_complete"]) == ("ready", True)
    assert body["topics"] >= 1


def test_every_metric_of_the_contract_is_there(api: Api) -> None:
    api.append(fresh(), 1)
    api.create(fresh(), type="queue")
    names = {key.partition("{")[0] for key in metrics(api)}
    assert names >= NAMES
    assert all(name.startswith("topics_") for name in names)


def test_the_gauges_tell_the_truth(api: Api) -> None:
    before = metrics(api)
    topic, queue = fresh(), fresh("q")
    api.create(topic, durability="fsync")
    api.append(topic, 1, 2, 3)
    api.create(queue, type="queue", durability="memory")
    api.append(queue, 1, 2)
    ok(api.post(f"topics/{queue}/claim", {"node": "w"}))
    ok(api.put(f"routers/{fresh('r')}", {"source": topic, "dest": fresh("dst")}), 201)
    after = metrics(api)

    def grown(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert grown("topics_topics") == 3
    assert grown('topics_topics_by_class{class="fsync"}') == 1
    assert grown('topics_topics_by_class{class="memory"}') == 1
    assert grown("topics_records_live") == 5
    assert grown("topics_queue_topics") == 1
    assert grown("topics_queue_leases_in_flight") == 1
    assert grown("topics_routers") == 1
    assert grown("topics_wal_fsyncs_total") >= 1
    assert grown("topics_wal_fsync_latency_us_count") >= 1
    assert grown("topics_wal_frames_total") >= 5
    assert grown("topics_wal_bytes_written_total") > 0
    assert after[f'topics_topic_head_seq{{topic="{topic}"}}'] == 3
    assert after[f'topics_topic_earliest_seq{{topic="{topic}"}}'] == 1
    assert after[f'topics_topic_records_live{{topic="{topic}"}}'] == 3
    assert after[f'topics_topic_queue_ready{{topic="{queue}"}}'] == 1
    assert after[f'topics_topic_queue_in_flight{{topic="{queue}"}}'] == 1
    assert (after["topics_ready"], after["topics_recovery_progress"]) == (1, 1)
    assert after["topics_wal_read_only"] == 0


def test_streams_and_sessions_are_counted(http1: Api) -> None:
    topic = fresh()
    http1.create(topic)
    before = metrics(http1)
    session = ok(http1.post("watch", {"topics": {topic: {"tail": True}}}))
    with Stream(http1.client, session["stream_url"]) as stream:
        stream.next_of("caught-up")
        during = metrics(http1)
        for name in ("topics_sse_connections", "topics_watch_sessions"):
            assert during[name] - before[name] == 1
    for _ in range(200):
        if metrics(http1)["topics_sse_connections"] == before["topics_sse_connections"]:
            break
    assert metrics(http1)["topics_sse_connections"] == before["topics_sse_connections"]


def test_the_histogram_is_one(api: Api) -> None:
    topic = fresh()
    api.create(topic, durability="fsync")
    api.append(topic, 1)
    found = metrics(api)
    buckets = [v for k, v in found.items() if k.startswith("topics_wal_fsync_latency_us_bucket{")]
    assert buckets == sorted(buckets)
    top = found['topics_wal_fsync_latency_us_bucket{le="+Inf"}']
    assert top == found["topics_wal_fsync_latency_us_count"] >= 1


def test_metrics_speak_json_when_asked(api: Api) -> None:
    response = api.client.get("/v0/metrics", headers={"Accept": "application/json"})
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("application/json")
    body = response.json()
    assert any("topics_topics" in str(key) for key in body) or "topics_topics" in response.text


def test_no_body_is_needed_and_others_methods_are_refused(api: Api) -> None:
    refused(api.client.delete("/v0/health"), 405, "method_not_allowed")
    refused(api.client.delete("/v0/metrics"), 405, "method_not_allowed")
