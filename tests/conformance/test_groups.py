"""Consumer groups over HTTP: every route, every error."""

import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from tests.conformance.api import Api, Reply, fresh, ok, open_client, refused

from topics.testing.server_process import ServerProcess

KEYS = "all,only-a:rc:a-|ga,reader:r,taker:rc"
LONG_MS = 9_000


@pytest.fixture(scope="module")
def api(server: ServerProcess) -> Iterator[Api]:
    with open_client(server.url, key="all") as client:
        yield Api(client)


def join(api: Api, group: str, member: str, *topics: str, **fields: object) -> Reply:
    return ok(
        api.post(f"groups/{group}/join", {"member": member, "topics": list(topics), **fields})
    )


def beat(api: Api, group: str, member: str, generation: int, **fields: object) -> Reply:
    body = {"member": member, "generation": generation, **fields}
    return ok(api.post(f"groups/{group}/heartbeat", body))


def poll(api: Api, group: str, member: str, generation: int, **fields: object) -> httpx.Response:
    body = {"member": member, "generation": generation, **fields}
    return api.post(f"groups/{group}/poll", body)


def commit(api: Api, group: str, offsets: object, **fields: object) -> httpx.Response:
    return api.post(f"groups/{group}/commit", {"offsets": offsets, **fields})


def test_a_member_gets_every_partition_and_reads_and_commits_it(api: Api) -> None:
    group, topic = fresh("g"), fresh()
    api.append(topic, "a", "b", "c")
    joined = join(api, group, "m", topic)
    assert joined["assigned"] == {topic: [0]}
    assert joined["committed"] == {topic: {"0": 0}}
    assert joined["heartbeat_ms"] == 3333
    generation = joined["generation"]
    polled = ok(poll(api, group, "m", generation, limit=2))
    (batch,) = polled["batches"]
    assert [record["data"] for record in batch["records"]] == ["a", "b"]
    assert (batch["topic"], batch["partition"], batch["tombstone"]) == (topic, 0, None)
    assert (batch["next_from_seq"], batch["head_seq"], batch["lag"]) == (2, 3, 1)
    assert batch["caught_up"] is False
    assert polled["positions"] == {topic: {"0": 2}}
    done = ok(commit(api, group, polled["positions"], member="m", generation=generation))
    assert done["committed"] == {topic: {"0": 2}}
    assert done["performance"]["fsync_ms"] > 0
    (batch,) = ok(poll(api, group, "m", generation))["batches"]
    assert [record["data"] for record in batch["records"]] == ["c"]
    assert ok(poll(api, group, "m", generation))["batches"] == []
    shown = ok(api.get(f"groups/{group}"))
    assert shown["state"] == "stable"
    assert shown["lag_total"] == 1
    assert shown["partitions"] == [
        {"topic": topic, "partition": 0, "owner": "m", "committed": 2, "head_seq": 3, "lag": 1}
    ]


def test_a_partition_moves_only_after_its_owner_gave_it_up(api: Api) -> None:
    group, one, two = fresh("g"), fresh(), fresh()
    api.append(one, 1)
    api.append(two, 1)
    first = join(api, group, "a", one, two)
    second = join(api, group, "b", one, two)
    assert second["generation"] > first["generation"]
    assert second["assigned"] == {}
    refused(poll(api, group, "a", first["generation"]), 409, "generation_mismatch")
    told = beat(api, group, "a", first["generation"])
    ((topic, partitions),) = told["release"].items()
    assert topic not in told["assigned"]
    assert ok(api.get(f"groups/{group}"))["state"] == "moving"
    # The old owner may still work on it, and commit what it has done.
    ok(commit(api, group, {topic: {0: 1}}, member="a", generation=told["generation"]))
    after = beat(api, group, "a", told["generation"], released={topic: partitions})
    assert after["release"] == {}
    got = beat(api, group, "b", second["generation"])
    assert got["assigned"] == {topic: [0]}
    assert got["committed"] == {topic: {"0": 1}}
    assert ok(api.get(f"groups/{group}"))["state"] == "stable"
    assert ok(poll(api, group, "b", got["generation"]))["batches"] == []
    assert ok(api.post(f"groups/{group}/leave", {"member": "a"}))["left"] is True
    assert ok(api.post(f"groups/{group}/leave", {"member": "a"}))["left"] is False
    assert set(beat(api, group, "b", 0)["assigned"]) == {one, two}


def test_a_silent_member_is_gone_when_its_session_ends(api: Api) -> None:
    group, topic = fresh("g"), fresh()
    api.append(topic, 1)
    join(api, group, "silent", topic, session_ms=1000)
    waiting = join(api, group, "waiting", topic, session_ms=10_000)
    assert waiting["assigned"] == {}
    deadline = time.monotonic() + 10
    while not beat(api, group, "waiting", 0)["assigned"]:
        assert time.monotonic() < deadline, "the silent member is still there"
    detail = refused(
        api.post(f"groups/{group}/heartbeat", {"member": "silent", "generation": 1}),
        409,
        "generation_mismatch",
    )
    assert detail["generation"] >= 3


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"member": "", "topics": ["t"]},
        {"member": "m", "topics": []},
        {"member": "m", "topics": ["no/name"]},
        {"member": "m", "topics": ["t"], "session_ms": 999},
        {"member": "m", "topics": ["t"], "session_ms": 300_001},
        {"member": "m", "topics": ["t"], "assignor": "best"},
        {"member": "m" * 129, "topics": ["t"]},
    ],
)
def test_a_join_that_cannot_be_used_is_refused(api: Api, body: Reply) -> None:
    refused(api.post(f"groups/{fresh('g')}/join", body), 400, "invalid_request")


def test_a_bad_group_name_is_refused(api: Api) -> None:
    refused(api.get("groups/-x"), 400, "invalid_request")


def test_topics_of_a_group_are_there_and_no_queues(api: Api) -> None:
    group, queue = fresh("g"), fresh()
    body = {"member": "m", "topics": [fresh("none")]}
    refused(api.post(f"groups/{group}/join", body), 404, "topic_not_found")
    api.create(queue, type="queue")
    body = {"member": "m", "topics": [queue]}
    refused(api.post(f"groups/{group}/join", body), 409, "topic_exists_incompatible")
    refused(api.get(f"groups/{group}"), 404, "group_not_found")


def test_another_assignor_waits_until_the_group_is_empty(api: Api) -> None:
    group, topic = fresh("g"), fresh()
    api.create(topic)
    join(api, group, "m", topic)
    body = {"member": "n", "topics": [topic], "assignor": "range"}
    refused(api.post(f"groups/{group}/join", body), 409, "topic_exists_incompatible")
    ok(api.post(f"groups/{group}/leave", {"member": "m"}))
    ok(api.post(f"groups/{group}/join", body))
    assert ok(api.get(f"groups/{group}"))["assignor"] == "range"


def test_a_commit_is_refused_unless_it_is_the_owner_s_own(api: Api) -> None:
    group, topic, other = fresh("g"), fresh(), fresh()
    api.append(topic, 1, 2)
    api.append(other, 1)
    generation = join(api, group, "m", topic)["generation"]
    stale = commit(api, group, {topic: {0: 1}}, member="m", generation=generation - 1)
    assert refused(stale, 409, "generation_mismatch") == {"generation": generation}
    for offsets, member in (({topic: {0: 1}}, "x"), ({other: {0: 1}}, "m"), ({topic: {1: 1}}, "m")):
        response = commit(api, group, offsets, member=member, generation=generation)
        refused(response, 409, "generation_mismatch")
    past = commit(api, group, {topic: {0: 3}}, member="m", generation=generation)
    refused(past, 400, "invalid_request")
    both = {topic: {0: 1}, other: {0: 1}}
    refused(commit(api, group, both, member="m", generation=generation), 409, "generation_mismatch")
    refused(commit(api, group, {topic: {0: 1}}), 409, "generation_mismatch")
    refused(commit(api, group, {topic: {0: 1}}, member="m"), 400, "invalid_request")
    assert ok(api.get(f"groups/{group}"))["partitions"][0]["committed"] is None


def test_a_late_commit_does_not_turn_progress_back(api: Api) -> None:
    group, topic = fresh("g"), fresh()
    api.append(topic, *range(5))
    generation = join(api, group, "m", topic)["generation"]
    ok(commit(api, group, {topic: {0: 4}}, member="m", generation=generation))
    late = ok(commit(api, group, {topic: {0: 2}}, member="m", generation=generation))
    assert late["committed"] == {topic: {"0": 4}}


def test_an_operator_moves_the_progress_of_an_empty_group(api: Api) -> None:
    group, topic = fresh("g"), fresh()
    api.append(topic, *range(5))
    assert ok(commit(api, group, {topic: {0: 4}}))["committed"] == {topic: {"0": 4}}
    assert ok(commit(api, group, {topic: {0: 2}}))["committed"] == {topic: {"0": 2}}
    refused(commit(api, group, {fresh("none"): {0: 0}}), 404, "topic_not_found")
    refused(commit(api, group, {topic: {1: 0}}), 400, "invalid_request")
    refused(commit(api, group, {topic: {0: 6}}), 400, "invalid_request")
    refused(commit(api, group, {topic: {0: -1}}), 400, "invalid_request")
    generation = join(api, group, "m", topic)["generation"]
    (batch,) = ok(poll(api, group, "m", generation))["batches"]
    assert [record["$seq"] for record in batch["records"]] == [3, 4, 5]


def test_a_seek_moves_where_it_says(api: Api) -> None:
    group, topic = fresh("g"), fresh()
    api.append(topic, *range(5))
    latest = {"to": "latest", "topics": {topic: None}}
    would = ok(api.post(f"groups/{group}/seek", {**latest, "topics": {topic: [0]}}))
    assert would["moves"] == [{"topic": topic, "partition": 0, "from": None, "to": 5}]
    dry = ok(api.post(f"groups/{group}/seek", {"to": "earliest", "dry_run": True}))
    assert dry["moves"] == [{"topic": topic, "partition": 0, "from": 5, "to": 0}]
    assert ok(api.get(f"groups/{group}"))["partitions"][0]["committed"] == 5
    ok(api.post(f"groups/{group}/seek", {"to": {"seq": 3}}))
    assert ok(api.get(f"groups/{group}"))["lag_total"] == 2
    moved = ok(api.post(f"groups/{group}/seek", {"to": {"ts": 0}}))
    assert moved["moves"] == [{"topic": topic, "partition": 0, "from": 3, "to": 0}]
    moved = ok(api.post(f"groups/{group}/seek", {"to": {"ts": 2**52}}))
    assert [move["to"] for move in moved["moves"]] == [5]
    for to in ("middle", {}, {"seq": 1, "ts": 1}, {"seq": 6}, {"ts": 2**64}, {"ts": -1}, None):
        refused(api.post(f"groups/{group}/seek", {"to": to}), 400, "invalid_request")
    none = {"to": "latest", "topics": {fresh("none"): None}}
    refused(api.post(f"groups/{group}/seek", none), 404, "topic_not_found")
    refused(api.post(f"groups/{fresh('g')}/seek", {"to": "latest"}), 404, "group_not_found")
    join(api, group, "m", topic)
    refused(api.post(f"groups/{group}/seek", latest), 409, "group_not_empty")


def test_positions_in_a_poll_bring_a_lost_answer_again(api: Api) -> None:
    group, topic = fresh("g"), fresh()
    api.append(topic, *range(5))
    generation = join(api, group, "m", topic)["generation"]
    ok(poll(api, group, "m", generation))  # its answer was lost
    again = ok(poll(api, group, "m", generation, positions={topic: {"0": 0}}))
    assert [record["$seq"] for record in again["batches"][0]["records"]] == [1, 2, 3, 4, 5]


def test_a_poll_may_begin_at_a_time(api: Api) -> None:
    group, topic = fresh("g"), fresh()
    api.append(topic, *range(3))
    ts = api.diff(topic)["records"][0]["$ts"]
    generation = join(api, group, "m", topic)["generation"]
    later = ok(poll(api, group, "m", generation, from_ts=2**52, wait_ms=50))
    assert not any(batch["records"] for batch in later["batches"])
    assert later["positions"] == {topic: {"0": 3}}
    again = ok(poll(api, group, "m", generation, from_ts=ts, positions={topic: {"0": 0}}))
    assert [record["$seq"] for record in again["batches"][0]["records"]] == [1, 2, 3]
    refused(poll(api, group, "m", generation, from_ts=-1), 400, "invalid_request")


def test_a_poll_may_end_at_a_time(api: Api) -> None:
    group, first, second = fresh("g"), fresh(), fresh()
    for topic in (first, second):
        api.append(topic, *range(3))
    ts = max(api.diff(topic)["records"][-1]["$ts"] for topic in (first, second))
    generation = join(api, group, "m", first, second)["generation"]
    polled = ok(poll(api, group, "m", generation, until_ts=ts + 1, wait_ms=LONG_MS))
    assert [len(batch["records"]) for batch in polled["batches"]] == [3, 3]
    while int(time.time() * 1000) <= ts:
        pass  # within its millisecond
    api.append(first, "later")
    polled = ok(poll(api, group, "m", generation, until_ts=ts + 1, wait_ms=LONG_MS))
    assert not any(batch["records"] for batch in polled["batches"])
    assert (polled["until_reached"], polled["positions"][first]) == (True, {"0": 3})
    assert "until_reached" not in ok(poll(api, group, "m", generation))
    body = {"from_ts": 2, "until_ts": 1}
    refused(poll(api, group, "m", generation, **body), 400, "invalid_request")


def test_a_poll_that_waits_ends_when_its_window_does(api: Api) -> None:
    group, quiet = fresh("g"), fresh()
    api.create(quiet)
    generation = join(api, group, "m", quiet)["generation"]
    until_ts = int(time.time() * 1000) + 300
    polled = ok(poll(api, group, "m", generation, until_ts=until_ts, wait_ms=LONG_MS))
    assert (polled["batches"][0]["records"], polled["until_reached"]) == ([], True)
    assert polled["performance"]["wait_ms"] < LONG_MS / 2


def test_a_member_that_joins_again_starts_at_what_is_committed(api: Api) -> None:
    group, topic = fresh("g"), fresh()
    api.append(topic, *range(5))
    first = join(api, group, "m", topic)
    ok(poll(api, group, "m", first["generation"]))
    second = join(api, group, "m", topic)
    assert second["generation"] == first["generation"]
    (batch,) = ok(poll(api, group, "m", first["generation"]))["batches"]
    assert len(batch["records"]) == 5


def test_a_loss_is_told_by_a_poll(api: Api) -> None:
    group, topic = fresh("g"), fresh()
    api.create(topic, cap_records=2)
    api.append(topic, *range(5))
    generation = join(api, group, "m", topic)["generation"]
    (batch,) = ok(poll(api, group, "m", generation))["batches"]
    assert (batch["tombstone"]["gap_from"], batch["tombstone"]["gap_to"]) == (1, 3)
    assert [record["$seq"] for record in batch["records"]] == [4, 5]


def test_a_topic_that_was_created_again_is_read_from_its_start(api: Api) -> None:
    group, topic = fresh("g"), fresh()
    api.append(topic, *range(5))
    generation = join(api, group, "m", topic)["generation"]
    positions = ok(poll(api, group, "m", generation))["positions"]
    ok(commit(api, group, positions, member="m", generation=generation))
    ok(api.delete(f"topics/{topic}"))
    api.append(topic, *range(7))
    refused(poll(api, group, "m", generation, positions=positions), 409, "generation_mismatch")
    told = beat(api, group, "m", generation)
    assert told["generation"] > generation
    assert told["committed"] == {topic: {"0": 0}}
    generation = told["generation"]
    polled: Reply = {}
    for _ in range(2):  # the first answer is lost: it is told again
        polled = ok(poll(api, group, "m", generation, positions=positions))
        (batch,) = polled["batches"]
        assert batch["tombstone"]["reason"] == "recreated"
        assert batch["records"] == []
        assert batch["next_from_seq"] == 0
    done = ok(poll(api, group, "m", generation, positions=polled["positions"]))
    assert [record["$seq"] for record in done["batches"][0]["records"]] == [1, 2, 3, 4, 5, 6, 7]


def in_background(call: object) -> tuple[threading.Thread, list[httpx.Response]]:
    answers: list[httpx.Response] = []
    assert callable(call)
    thread = threading.Thread(target=lambda: answers.append(call()))
    thread.start()
    return thread, answers


def test_a_poll_waits_for_records(api: Api, server: ServerProcess) -> None:
    group, topic = fresh("g"), fresh()
    api.create(topic)
    generation = join(api, group, "m", topic)["generation"]
    with open_client(server.url, key="all") as client:
        thread, answers = in_background(
            lambda: poll(Api(client), group, "m", generation, wait_ms=LONG_MS)
        )
        api.append(topic, "news")
        thread.join(LONG_MS / 1000)
    (batch,) = ok(answers[0])["batches"]
    assert [record["data"] for record in batch["records"]] == ["news"]


def test_a_poll_that_waits_ends_with_its_generation(api: Api, server: ServerProcess) -> None:
    group, topic = fresh("g"), fresh()
    api.create(topic)
    generation = join(api, group, "m", topic)["generation"]
    with open_client(server.url, key="all") as client:
        thread, answers = in_background(
            lambda: poll(Api(client), group, "m", generation, wait_ms=LONG_MS)
        )
        join(api, group, "n", topic)
        thread.join(LONG_MS / 1000)
    assert refused(answers[0], 409, "generation_mismatch") == {"generation": generation + 1}


def test_a_poll_that_waits_in_vain_says_so(api: Api) -> None:
    group, topic = fresh("g"), fresh()
    api.create(topic)
    generation = join(api, group, "m", topic)["generation"]
    polled = ok(poll(api, group, "m", generation, wait_ms=50))
    assert polled["batches"] == []
    assert polled["positions"] == {topic: {"0": 0}}
    assert polled["performance"]["wait_ms"] >= 50


def test_a_limit_is_shared_between_partitions(api: Api) -> None:
    group, topics = fresh("g"), [fresh() for _ in range(3)]
    for topic in topics:
        api.append(topic, *range(10))
    generation = join(api, group, "m", *topics)["generation"]
    polled = ok(poll(api, group, "m", generation, limit=6))
    assert sorted(len(batch["records"]) for batch in polled["batches"]) == [2, 2, 2]
    seen = set()
    for _ in topics:
        (batch,) = ok(poll(api, group, "m", generation, limit=1))["batches"]
        seen.add(batch["topic"])
    assert seen == set(topics)


def test_groups_are_listed_page_by_page(api: Api) -> None:
    topic, prefix = fresh(), fresh("list")
    api.append(topic, 1)
    for name in "abc":
        ok(commit(api, f"{prefix}{name}", {topic: {0: 1}}))
    first = ok(api.get("groups", prefix=prefix, page_size=2))
    assert [group["group"] for group in first["groups"]] == [f"{prefix}a", f"{prefix}b"]
    second = ok(api.get("groups", prefix=prefix, page_size=2, cursor=first["next_cursor"]))
    (last,) = second["groups"]
    assert (last["state"], last["members"], last["topics"]) == ("empty", 0, [topic])
    assert "next_cursor" not in second


def test_a_group_is_deleted_only_without_members(api: Api) -> None:
    group, topic = fresh("g"), fresh()
    api.append(topic, 1)
    generation = join(api, group, "m", topic)["generation"]
    refused(api.delete(f"groups/{group}"), 409, "group_not_empty")
    ok(api.post(f"groups/{group}/leave", {"member": "m"}))
    assert ok(api.delete(f"groups/{group}"))["deleted"] is True
    refused(api.delete(f"groups/{group}"), 404, "group_not_found")
    refused(api.get(f"groups/{group}"), 404, "group_not_found")
    refused(poll(api, group, "m", generation), 409, "generation_mismatch")
    assert join(api, group, "m", topic)["generation"] > generation


def test_the_lag_is_a_metric(api: Api) -> None:
    group, topic = fresh("g"), fresh()
    api.append(topic, *range(5))
    ok(commit(api, group, {topic: {0: 2}}))
    text = api.get("metrics").text
    assert f'topics_group_lag{{group="{group}",topic="{topic}",partition="0"}} 3' in text


def test_a_key_needs_the_scope_and_every_name(api: Api, server: ServerProcess) -> None:
    mine, other = fresh("a"), fresh("b")
    api.append(mine, 1)
    api.append(other, 1)
    with open_client(server.url, key="only-a") as client, open_client(server.url) as nobody:
        limited = Api(client)
        join(limited, "ga", "m", mine)
        body = {"member": "m", "topics": [mine, other]}
        refused(limited.post("groups/ga/join", body), 403, "forbidden")
        refused(limited.post("groups/other/join", body), 403, "forbidden")
        refused(limited.post("groups/ga/seek", {"to": "latest"}), 403, "forbidden")
        refused(limited.delete("groups/ga"), 403, "forbidden")
        assert [g["group"] for g in ok(limited.get("groups"))["groups"]] == ["ga"]
        join(api, "ga", "n", other)
        refused(limited.get("groups/ga"), 403, "forbidden")
        refused(limited.post("groups/ga/leave", {"member": "m"}), 403, "forbidden")
        assert ok(limited.get("groups"))["groups"] == []
        refused(Api(nobody).get("groups/ga"), 401, "unauthorized")


def test_who_may_only_read_looks_and_takes_no_part(api: Api, server: ServerProcess) -> None:
    """A dashboard's key must not take a worker's group apart."""
    group, topic = fresh("g"), fresh()
    api.append(topic, 1)
    joined = join(api, group, "worker", topic)
    generation = {"member": "worker", "generation": joined["generation"]}
    words = {
        "join": {"member": "x", "topics": [topic]},
        "heartbeat": generation,
        "poll": generation,
        "commit": {"offsets": {topic: {"0": 1}}, **generation},
        "leave": {"member": "worker"},
    }
    with open_client(server.url, key="reader") as client:
        for word, body in words.items():
            refused(Api(client).post(f"groups/{group}/{word}", body), 403, "forbidden")
        state = ok(Api(client).get(f"groups/{group}"))
    assert [member["member"] for member in state["members"]] == ["worker"]
    assert state["partitions"][0]["committed"] is None
    with open_client(server.url, key="taker") as client:
        for word, body in words.items():
            if word != "join":
                ok(Api(client).post(f"groups/{group}/{word}", body))


@pytest.mark.parametrize("path", ["join", "heartbeat", "leave", "commit", "poll", "seek"])
def test_a_body_that_is_no_json_is_refused(api: Api, path: str) -> None:
    refused(api.raw("POST", f"groups/g/{path}", b"{"), 400, "invalid_request")
    refused(api.get(f"groups/g/{path}"), 405, "method_not_allowed")
