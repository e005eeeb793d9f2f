"""Queues: claim, ack, nack, extend, work; leases, fences, dead letters."""

import re
import threading
import time
from collections.abc import Callable

import httpx
import pytest
from tests.conformance.api import Api, Reply, fresh, ok, open_client, refused
from tests.conformance.sse_client import ACCEPT, Stream

from topics.testing.server_process import ServerProcess

ROUTES = ("claim", "ack", "nack", "extend")


@pytest.fixture
def jobs(api: Api, durability: str) -> str:
    """Make a queue with five jobs."""
    return new_queue(api, 5, durability=durability)


def new_queue(api: Api, count: int, **config: object) -> str:
    topic = fresh("q")
    api.create(topic, type="queue", **config)
    if count:
        api.append(topic, *range(1, count + 1))
    return topic


def call(api: Api, topic: str, verb: str, **body: object) -> Reply:
    return ok(api.post(f"topics/{topic}/{verb}", body))


def claim(api: Api, topic: str, node: str = "w", **body: object) -> list[Reply]:
    claimed: list[Reply] = call(api, topic, "claim", node=node, **body)["claimed"]
    return claimed


def counts(api: Api, topic: str) -> tuple[int, int, int]:
    queue = api.state(topic)["queue"]
    return queue["ready"], queue["in_flight"], queue["dead_lettered"]


def until(holds: Callable[[], bool], deadline_s: float = 5.0) -> None:
    end_s = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.005)


def test_a_claim_has_the_fields_of_the_contract(api: Api, durability: str) -> None:
    topic = new_queue(api, 0, durability=durability)
    job = {"data": {"do": "it"}, "tag": "t", "meta": {"m": 1}, "node": "n"}
    api.append_records(topic, [job, {"data": 2}])
    before_ms = int(time.time() * 1000)
    reply = call(api, topic, "claim", node="w", max=2, lease_ms=10_000)
    assert (reply["count"], reply["ready"]) == (2, 0)
    first, second = reply["claimed"]
    assert set(first) >= {"$seq", "lease_id", "deadline", "$ts", "$tag", "deliveries", "data"}
    assert (first["$seq"], first["$tag"], first["data"]) == (1, "t", {"do": "it"})
    assert (first["deliveries"], first["meta"]) == (1, {"m": 1})
    assert re.fullmatch(r"lease_[0-9a-f]+", first["lease_id"])
    assert before_ms + 9_000 < first["deadline"] < before_ms + 15_000
    assert "$tag" not in second
    assert "meta" not in second
    assert first["lease_id"] != second["lease_id"]


def test_jobs_come_in_order_one_by_default(api: Api, jobs: str) -> None:
    assert [job["$seq"] for job in claim(api, jobs)] == [1]
    assert [job["$seq"] for job in claim(api, jobs, max=3)] == [2, 3, 4]
    assert counts(api, jobs) == (1, 4, 0)
    assert [job["$seq"] for job in claim(api, jobs, max=1000)] == [5]
    assert claim(api, jobs) == []


def test_an_acked_job_is_gone_for_good(api: Api, jobs: str) -> None:
    claim(api, jobs, max=2)
    reply = call(api, jobs, "ack", node="w", seqs=[1, 2])
    assert (reply["acked"], reply["skipped"]) == (2, []) or (
        reply["acked"],
        reply["skipped"],
    ) == ([1, 2], [])
    assert (reply["ready"], reply["in_flight"]) == (3, 0)
    assert api.data(jobs) == [3, 4, 5]
    assert api.diff(jobs)["tombstone"] is None
    assert api.state(jobs)["count"] == 3


def test_what_is_not_held_is_skipped_and_listed(api: Api, jobs: str) -> None:
    (job,) = claim(api, jobs, "one")
    assert call(api, jobs, "ack", node="two", seqs=[1])["skipped"] == [1]
    assert call(api, jobs, "ack", node="one", seqs=[2, 99])["skipped"] == [2, 99]
    stale = call(api, jobs, "ack", node="one", seqs=[1], lease_ids=["lease_00"])
    assert stale["skipped"] == [1]
    right = call(api, jobs, "ack", node="one", seqs=[1], lease_ids=[job["lease_id"]])
    assert right["skipped"] == []


def test_a_lease_that_ran_out_fences_its_old_holder(api: Api) -> None:
    topic = new_queue(api, 1)
    (old,) = claim(api, topic, "old", lease_ms=100)
    found: list[Reply] = []

    def is_claimed() -> bool:
        found.extend(claim(api, topic, "new"))
        return bool(found)

    until(is_claimed)
    assert (found[0]["$seq"], found[0]["deliveries"]) == (1, 2)
    late = call(api, topic, "ack", node="old", seqs=[1], lease_ids=[old["lease_id"]])
    assert late["skipped"] == [1]
    assert call(api, topic, "nack", node="old", seqs=[1])["skipped"] == [1]
    assert counts(api, topic) == (0, 1, 0)


def test_a_returned_job_comes_first(api: Api, jobs: str) -> None:
    claim(api, jobs, max=2)
    reply = call(api, jobs, "nack", node="w", seqs=[2])
    assert reply["skipped"] == []
    assert (reply["ready"], reply["in_flight"]) == (4, 1)
    again = claim(api, jobs, "x", max=2)
    assert [(job["$seq"], job["deliveries"]) for job in again] == [(2, 2), (3, 1)]


def test_a_returned_job_can_wait(api: Api) -> None:
    topic = new_queue(api, 1)
    claim(api, topic)
    call(api, topic, "nack", node="w", seqs=[1], delay_ms=300)
    returned_s = time.monotonic()
    assert claim(api, topic) == []
    until(lambda: bool(claim(api, topic)))
    assert time.monotonic() - returned_s > 0.2


def test_a_lease_can_be_extended(api: Api, jobs: str) -> None:
    (job,) = claim(api, jobs, lease_ms=1_000)
    reply = call(api, jobs, "extend", node="w", seqs=[1, 4], lease_ms=50_000)
    assert reply["skipped"] == [4]
    assert list(reply["deadlines"]) == ["1"]
    assert reply["deadlines"]["1"] > job["deadline"] + 30_000


@pytest.mark.parametrize("delay_ms", ["soon", 1.5, None])
def test_a_bad_delay_is_refused(api: Api, delay_ms: object) -> None:
    topic = new_queue(api, 1)
    body = {"node": "w", "seqs": [1], "delay_ms": delay_ms}
    refused(api.post(f"topics/{topic}/nack", body), 400, "invalid_request")


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("claim", {}),
        ("claim", {"node": ""}),
        ("claim", {"node": "é" * 65}),
        ("claim", {"node": 1}),
        ("claim", {"node": "w", "max": "all"}),
        ("claim", {"node": "w", "max": -1}),
        ("claim", {"node": "w", "lease_ms": "long"}),
        ("ack", {"node": "w"}),
        ("ack", {"node": "", "seqs": [1]}),
        ("ack", {"node": "w", "seqs": ["1"]}),
        ("ack", {"node": "w", "seqs": 1}),
        ("ack", {"node": "w", "seqs": [1, 2], "lease_ids": ["lease_00"]}),
        ("nack", {"seqs": [1]}),
        ("extend", {"node": "w", "seqs": [1]}),
    ],
)
def test_a_bad_request_is_refused(api: Api, verb: str, body: Reply) -> None:
    topic = new_queue(api, 1)
    refused(api.post(f"topics/{topic}/{verb}", body), 400, "invalid_request")
    assert counts(api, topic) == (1, 0, 0)


def test_a_worker_has_a_name_like_any_node(api: Api) -> None:
    topic = new_queue(api, 1)
    for node in ("", "é" * 65):
        answer = api.client.get(f"/v0/topics/{topic}/work", params={"node": node}, headers=ACCEPT)
        refused(answer, 400, "invalid_request")
    assert claim(api, topic, "é" * 64)
    assert call(api, topic, "ack", node="é" * 64, seqs=[1])["acked"] == 1


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_more_than_a_thousand_seqs_are_too_many(api: Api, verb: str) -> None:
    topic = new_queue(api, 1)
    body: Reply = {"node": "w", "seqs": list(range(1, 1002))}
    body |= {"lease_ms": 1000} if verb == "extend" else {}
    refused(api.post(f"topics/{topic}/{verb}", body), 400, "batch_too_large")


@pytest.mark.parametrize("verb", ROUTES)
def test_only_a_queue_has_jobs(api: Api, verb: str) -> None:
    log = fresh()
    api.create(log)
    body: Reply = {"node": "w"} if verb == "claim" else {"node": "w", "seqs": [1]}
    body |= {"lease_ms": 1000} if verb == "extend" else {}
    refused(api.post(f"topics/{log}/{verb}", body), 409, "not_a_queue")
    refused(api.post(f"topics/{fresh()}/{verb}", body), 404, "topic_not_found")


def test_work_on_no_queue_is_refused(api: Api) -> None:
    log = fresh()
    api.create(log)
    for topic, status, code in ((log, 409, "not_a_queue"), (fresh(), 404, "topic_not_found")):
        response = api.client.get(f"/v0/topics/{topic}/work", params={"node": "w"}, headers=ACCEPT)
        refused(response, status, code)


def test_work_must_be_asked_for_as_a_stream_and_with_a_node(api: Api) -> None:
    topic = new_queue(api, 1)
    path = f"/v0/topics/{topic}/work"
    response = api.client.get(f"{path}?node=w", headers={"Accept": "application/json"})
    refused(response, 406, "not_acceptable")
    refused(api.client.get(path, headers=ACCEPT), 400, "invalid_request")
    assert counts(api, topic) == (1, 0, 0)


def test_a_job_that_fails_too_often_goes_to_the_dead_letters(api: Api, durability: str) -> None:
    dead = fresh("dead")
    topic = new_queue(api, 0, max_deliveries=2, dead_letter=dead, durability=durability)
    api.append_records(topic, [{"data": "poison", "meta": {"m": 1}, "tag": "t"}])
    for _ in range(2):
        claim(api, topic)
        call(api, topic, "nack", node="w", seqs=[1])
    assert claim(api, topic) == []
    assert counts(api, topic) == (0, 0, 1)
    (letter,) = api.diff(dead, include_tags=True)["records"]
    assert letter["data"] == "poison"
    assert letter["meta"]["m"] == 1
    assert letter["meta"]["$dead_letter_from"] == topic
    assert letter["meta"]["$dead_letter_deliveries"] == 2
    assert letter["meta"]["$dead_letter_src_seq"] == 1
    assert api.data(topic) == []


def test_a_job_dies_into_the_partitions_of_its_dead_letter_topic_and_comes_back(
    api: Api, durability: str
) -> None:
    dead = fresh("dead")
    api.create(dead, partitions=3, durability=durability)
    topic = new_queue(api, 0, max_deliveries=1, dead_letter=dead, durability=durability)
    api.append_records(topic, [{"data": "poison", "tag": "user1"}])
    claim(api, topic)
    call(api, topic, "nack", node="w", seqs=[1])
    assert claim(api, topic) == []
    assert counts(api, topic) == (0, 0, 1)
    (letter,) = api.diff(f"{dead}-2", include_tags=True)["records"]
    assert (letter["data"], letter["$tag"]) == ("poison", "user1")
    assert letter["meta"]["$dead_letter_from"] == topic
    assert call(api, dead, "redrive")["queues"] == {topic: 1}
    assert [job["$tag"] for job in claim(api, topic)] == ["user1"]


def test_no_job_has_two_holders(api: Api, server: ServerProcess, durability: str) -> None:
    topic = new_queue(api, 120, durability=durability)
    got: list[int] = []

    def work(node: str) -> None:
        with open_client(server.url) as client:
            while batch := claim(Api(client), topic, node, max=7):
                held = [job["$seq"] for job in batch]
                got.extend(held)
                assert call(Api(client), topic, "ack", node=node, seqs=held)["skipped"] == []

    workers = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(got) == list(range(1, 121))
    assert counts(api, topic) == (0, 0, 0)


def test_a_jitter_window_deals_evenly(api: Api, server: ServerProcess) -> None:
    topic = new_queue(api, 40, claim_jitter_ms=400)
    got: dict[str, int] = {}
    together = threading.Barrier(4)

    def work(node: str) -> None:
        with open_client(server.url) as client:
            ok(client.get("/v0/health"))
            together.wait(10)
            got[node] = len(claim(Api(client), topic, node, max=40))

    workers = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert got == {"w0": 10, "w1": 10, "w2": 10, "w3": 10}


def test_reading_a_queue_takes_no_job(api: Api, jobs: str) -> None:
    assert api.data(jobs) == [1, 2, 3, 4, 5]
    assert counts(api, jobs) == (5, 0, 0)


def work_on(client: httpx.Client, topic: str, **parameters: object) -> Stream:
    query = "&".join(f"{name}={value}" for name, value in parameters.items())
    return Stream(client, f"/v0/topics/{topic}/work?{query}")


@pytest.mark.parametrize("transport", ["http1", "h2c"])
def test_work_is_pushed_up_to_max(http1: Api, server: ServerProcess, transport: str) -> None:
    topic = new_queue(http1, 3)
    with open_client(server.url, transport=transport) as client:
        stream = work_on(client, topic, node="w", max=2, lease_ms=20_000)
        first, second = stream.next_of("job"), stream.next_of("job")
        body = first.json
        assert first.id == "1"
        assert set(body) >= {"topic", "$seq", "lease_id", "deadline", "$ts", "deliveries", "data"}
        assert (body["topic"], body["$seq"], body["data"]) == (topic, 1, 1)
        assert second.json["$seq"] == 2
        assert counts(http1, topic) == (1, 2, 0)
        ids = [body["lease_id"]]
        acked = call(http1, topic, "ack", node="w", seqs=[1], lease_ids=ids)
        assert acked["skipped"] == []
        assert stream.next_of("job").json["$seq"] == 3
        stream.close()
    until(lambda: counts(http1, topic) == (2, 0, 0))
    again = claim(http1, topic, "other", max=5)
    assert [(job["$seq"], job["deliveries"]) for job in again] == [(2, 2), (3, 2)]


def test_new_jobs_are_pushed_as_they_come(http1: Api, server: ServerProcess) -> None:
    topic = new_queue(http1, 0)
    with open_client(server.url) as client, work_on(client, topic, node="w", max=5) as stream:
        for number in range(3):
            http1.append(topic, number)
            assert stream.next_of("job").json["data"] == number


@pytest.mark.parametrize("durable", [True, False])
def test_leases_outlive_a_crash_when_asked(
    server: ServerProcess, http1: Api, *, durable: bool
) -> None:
    topic = new_queue(http1, 3, leases_durable=durable, durability="fsync")
    held = claim(http1, topic, max=2, lease_ms=60_000)
    call(http1, topic, "ack", node="w", seqs=[1])
    server.kill9()
    server.restart()
    ids = [held[1]["lease_id"]]
    if durable:
        assert counts(http1, topic) == (1, 1, 0)
        assert call(http1, topic, "ack", node="w", seqs=[2], lease_ids=ids)["skipped"] == []
        assert [job["$seq"] for job in claim(http1, topic, max=5)] == [3]
    else:
        assert counts(http1, topic) == (2, 0, 0)
        assert [job["$seq"] for job in claim(http1, topic, max=5)] == [2, 3]
