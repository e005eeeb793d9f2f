"""Topics: create, change, look at, list, delete."""

import time

import pytest
from tests.conformance.api import Api, Reply, fresh, ok, refused

from topics.testing.server_process import ServerProcess

DEFAULTS: Reply = {
    "type": "log",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durability": "disk",
    "durable": False,
    "priority": None,
    "auto_priority": True,
    "auto_create": True,
    "idempotency_window_ms": 120_000,
    "producer_expiry_ms": 604_800_000,
    "dedupe_node": True,
    "lease_ms": 30_000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "leases_durable": False,
}
STATE_FIELDS = {
    "topic",
    "type",
    "head_seq",
    "earliest_seq",
    "next_seq",
    "count",
    "bytes",
    "config",
    "effective_priority",
    "last_write_ts",
    "last_read_ts",
}
BAD_NAMES = ["-x", ".x", ":x", "_x", "a%20b", "a%2Fb", "caf%C3%A9", "a%00b", "a>b", "x" * 256]


def test_an_empty_object_creates_a_topic_with_the_defaults(api: Api) -> None:
    topic = fresh()
    created = ok(api.put(f"topics/{topic}", {}), 201)
    assert created["topic"] == topic
    assert created["created"] is True
    assert {name: created["config"][name] for name in DEFAULTS} == DEFAULTS


def test_a_second_put_updates_and_keeps_what_it_does_not_name(api: Api) -> None:
    topic = fresh()
    api.create(topic, ttl_ms=5_000_000)
    updated = ok(api.put(f"topics/{topic}", {"cap_records": 7}))
    assert updated["created"] is False
    assert updated["config"]["ttl_ms"] == 5_000_000
    assert updated["config"]["cap_records"] == 7
    assert api.state(topic)["config"] == updated["config"]


@pytest.mark.parametrize("change", [{"type": "queue"}, {"type": "queue", "ttl_ms": 1}])
def test_the_type_cannot_change(api: Api, change: Reply) -> None:
    topic = fresh()
    api.create(topic)
    refused(api.put(f"topics/{topic}", change), 409, "topic_exists_incompatible")
    assert api.state(topic)["type"] == "log"
    assert api.state(topic)["config"]["ttl_ms"] == 0


@pytest.mark.parametrize(
    ("given", "durability"),
    [
        ({"durable": True}, "fsync"),
        ({"durable": False}, "disk"),
        ({"durability": "memory"}, "memory"),
        ({"durability": "ephemeral"}, "ephemeral"),
        ({"durability": "disk", "durable": True}, "disk"),
        ({"durability": "fsync", "durable": False}, "fsync"),
    ],
)
def test_the_durability_is_reported_resolved(api: Api, given: Reply, durability: str) -> None:
    config = api.create(fresh(), **given)["config"]
    assert config["durability"] == durability
    assert config["durable"] is (durability == "fsync")


@pytest.mark.parametrize(
    ("field", "given", "kept"),
    [
        ("priority", 5000, 1000),
        ("priority", -5000, -1000),
        ("priority", 12, 12),
        ("lease_ms", 1, 100),
        ("lease_ms", 90_000_000, 86_400_000),
        ("claim_jitter_ms", 6000, 5000),
    ],
)
def test_some_values_are_clamped(api: Api, field: str, given: int, kept: int) -> None:
    assert api.create(fresh(), type="queue", **{field: given})["config"][field] == kept


@pytest.mark.parametrize(
    "config",
    [
        {"type": "stack"},
        {"ttl_ms": -1},
        {"ttl_ms": "1"},
        {"ttl_ms": 1.5},
        {"cap_records": None},
        {"discard": "new"},
        {"durability": "sometimes"},
        {"durable": "yes"},
        {"colour": "red"},
        {"max_deliveries": -1},
        {"dead_letter": "no good"},
    ],
)
def test_a_bad_config_is_refused_and_creates_nothing(api: Api, config: Reply) -> None:
    topic = fresh()
    refused(api.put(f"topics/{topic}", config), 400, "invalid_request")
    refused(api.get(f"topics/{topic}"), 404, "topic_not_found")


def test_a_queue_cannot_be_its_own_dead_letter(api: Api) -> None:
    topic = fresh()
    body = {"type": "queue", "dead_letter": topic}
    refused(api.put(f"topics/{topic}", body), 400, "invalid_request")


@pytest.mark.parametrize("body", [b"[]", b"1", b'"x"', b"null", b"{", b"", b"{}x", b"\xff"])
def test_a_body_that_is_no_object_is_refused(api: Api, body: bytes) -> None:
    refused(api.raw("PUT", f"topics/{fresh()}", body), 400, "invalid_request")


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_is_refused_everywhere(api: Api, name: str) -> None:
    refused(api.put(f"topics/{name}"), 400, "invalid_request")
    refused(api.get(f"topics/{name}"), 400, "invalid_request")
    refused(api.delete(f"topics/{name}"), 400, "invalid_request")
    refused(api.post(f"topics/{name}", {"records": [{"data": 1}]}), 400, "invalid_request")
    refused(api.post(f"topics/{name}/diff"), 400, "invalid_request")


@pytest.mark.parametrize("name", ["x" * 255, "A.b_c:d-e", "9", "a..b", "con:1.x", "A%2Db"])
def test_every_good_name_works(api: Api, name: str) -> None:
    assert api.put(f"topics/{name}").status_code in {200, 201}
    assert api.state(name)["topic"] == name.replace("%2D", "-")


def test_names_differ_by_case(api: Api) -> None:
    low = fresh("case")
    api.create(low)
    refused(api.get(f"topics/{low.upper()}"), 404, "topic_not_found")


def test_a_fresh_topic_has_head_0_next_1_earliest_1(api: Api, durability: str) -> None:
    topic = fresh()
    api.create(topic, durability=durability)
    state = ok(api.get(f"topics/{topic}", touch=False))
    assert set(state) >= STATE_FIELDS
    assert (state["head_seq"], state["next_seq"], state["earliest_seq"]) == (0, 1, 1)
    assert (state["count"], state["bytes"], state["type"]) == (0, 0, "log")
    assert state["last_write_ts"] is None
    assert state["last_read_ts"] is None
    assert "queue" not in state


def test_the_state_follows_the_writes(api: Api, durability: str) -> None:
    topic = fresh()
    api.create(topic, durability=durability)
    before_ms = int(time.time() * 1000) - 1
    api.append(topic, 1, 2, 3)
    state = api.state(topic)
    assert (state["head_seq"], state["next_seq"], state["earliest_seq"]) == (3, 4, 1)
    assert state["count"] == 3
    assert state["bytes"] > 0
    assert before_ms <= state["last_write_ts"] <= int(time.time() * 1000) + 1


def test_a_read_is_remembered(api: Api) -> None:
    topic = fresh()
    api.append(topic, 1)
    api.diff(topic)
    assert isinstance(api.state(topic)["last_read_ts"], int)


def test_looking_without_touching_leaves_no_trace(api: Api) -> None:
    topic = fresh()
    api.create(topic)
    for _ in range(2):
        state = ok(api.get(f"topics/{topic}", touch=False))
        assert state["last_read_ts"] is None


def test_a_queue_tells_its_jobs(api: Api) -> None:
    topic = fresh()
    api.create(topic, type="queue")
    api.append(topic, 1, 2)
    state = api.state(topic)
    assert state["type"] == "queue"
    assert state["queue"] == {"ready": 2, "in_flight": 0, "dead_lettered": 0}


def test_looking_at_a_topic_never_creates_it(api: Api) -> None:
    topic = fresh()
    refused(api.get(f"topics/{topic}"), 404, "topic_not_found")
    refused(api.post(f"topics/{topic}/diff"), 404, "topic_not_found")
    refused(api.get(f"topics/{topic}"), 404, "topic_not_found")


def test_a_manual_priority_is_the_effective_one(api: Api) -> None:
    topic = fresh()
    api.create(topic, priority=-300)
    assert api.state(topic)["effective_priority"] == -300


def test_the_list_goes_by_pages(api: Api) -> None:
    prefix = fresh("page")
    names = [f"{prefix}.{number}" for number in range(5)]
    for name in names:
        api.create(name)
    found: list[str] = []
    cursors: list[str] = []
    parameters: Reply = {"prefix": f"{prefix}.", "page_size": 2}
    while True:
        page = ok(api.get("topics", **parameters))
        assert len(page["topics"]) <= 2
        found += [entry["topic"] for entry in page["topics"]]
        if "next_cursor" not in page:
            break
        cursors.append(page["next_cursor"])
        parameters["cursor"] = page["next_cursor"]
    assert found == names
    assert len(cursors) == 2


def test_an_entry_of_the_list_has_the_fields_of_the_contract(api: Api) -> None:
    topic = fresh("entry")
    api.create(topic, durable=True)
    api.append(topic, 1, 2)
    (entry,) = ok(api.get("topics", prefix=topic, touch=False))["topics"]
    fields = {"topic", "head_seq", "earliest_seq", "count", "bytes", "durable"}
    assert set(entry) >= fields | {"effective_priority"}
    assert (entry["head_seq"], entry["earliest_seq"], entry["count"]) == (2, 1, 2)
    assert entry["durable"] is True


def test_the_last_page_has_no_cursor_when_it_is_exactly_full(api: Api) -> None:
    prefix = fresh("full")
    for number in range(4):
        api.create(f"{prefix}.{number}")
    first = ok(api.get("topics", prefix=f"{prefix}.", page_size=2))
    cursor = first["next_cursor"]
    last = ok(api.get("topics", prefix=f"{prefix}.", page_size=2, cursor=cursor))
    assert len(last["topics"]) == 2
    assert "next_cursor" not in last


@pytest.mark.parametrize("cursor", ["!", "not-a-cursor", "%ff", "e30", "🙂"])
def test_a_bad_cursor_is_refused(api: Api, cursor: str) -> None:
    refused(api.get("topics", cursor=cursor), 400, "invalid_request")


@pytest.mark.parametrize("size", ["0x", "-1", "many", "1.5", "9" * 5000])
def test_a_bad_page_size_is_refused(api: Api, size: str) -> None:
    refused(api.get("topics", page_size=size), 400, "invalid_request")


def test_a_deleted_topic_is_gone_and_can_be_deleted_again(api: Api, durability: str) -> None:
    topic = fresh()
    api.create(topic, durability=durability)
    api.append(topic, 1)
    first = ok(api.delete(f"topics/{topic}"))
    assert (first["deleted"], first["routers_removed"]) == (True, [])
    second = ok(api.delete(f"topics/{topic}"))
    assert (second["deleted"], second["routers_removed"]) == (False, [])
    refused(api.get(f"topics/{topic}"), 404, "topic_not_found")


def test_a_topic_with_records_is_kept_when_only_an_empty_one_may_go(api: Api) -> None:
    topic = fresh()
    api.append(topic, 1)
    refused(api.delete(f"topics/{topic}", if_empty=True), 409, "topic_not_empty")
    ok(api.post(f"topics/{topic}/delete", {"before_seq": 2}))
    assert ok(api.delete(f"topics/{topic}", if_empty=True))["deleted"] is True


def test_deleting_a_topic_removes_its_routers_and_names_them(api: Api) -> None:
    source, dest = fresh("src"), fresh("dst")
    name = f"{source}->{dest}"
    api.create(source)
    ok(api.put(f"routers/{name}", {"source": source, "dest": dest}), 201)
    assert ok(api.delete(f"topics/{source}"))["routers_removed"] == [name]
    refused(api.get(f"routers/{name}"), 404, "router_not_found")


def test_a_new_life_starts_at_seq_1(api: Api, durability: str) -> None:
    topic = fresh()
    api.create(topic, durability=durability)
    api.append(topic, 1, 2, 3)
    ok(api.delete(f"topics/{topic}"))
    assert api.append(topic, "new")["first_seq"] == 1
    assert api.data(topic) == ["new"]


def test_topics_and_config_outlive_a_restart(server: ServerProcess, http1: Api) -> None:
    topic = fresh()
    http1.create(topic, ttl_ms=77_000_000, durability="memory", priority=3)
    before = http1.state(topic)["config"]
    server.restart()
    assert http1.state(topic)["config"] == before
