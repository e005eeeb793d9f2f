"""Read difference: pages, cursors, filters, waiting, loss."""

import threading
import time

import pytest
from tests.conformance.api import Api, Reply, fresh, ok, open_client, refused, seqs

from topics.testing.server_process import ServerProcess

FIELDS = {
    "topic",
    "records",
    "next_from_seq",
    "head_seq",
    "earliest_seq",
    "caught_up",
    "tombstone",
    "lag",
}


def test_a_page_has_the_fields_of_the_contract(api: Api, durability: str) -> None:
    topic = fresh()
    api.create(topic, durability=durability)
    api.append(topic, "a", "b", "c")
    page = api.diff(topic, from_seq=1, limit=1)
    assert set(page) >= FIELDS
    assert page["topic"] == topic
    assert seqs(page) == [2]
    assert (page["next_from_seq"], page["head_seq"], page["earliest_seq"]) == (2, 3, 1)
    assert (page["caught_up"], page["lag"], page["tombstone"]) == (False, 1, None)
    assert page["performance"]["records_scanned"] >= 1


def test_pages_follow_each_other_to_the_end(api: Api, durability: str) -> None:
    topic = fresh()
    api.create(topic, durability=durability)
    api.append(topic, *range(10))
    cursor, found = 0, []
    while True:
        page = api.diff(topic, from_seq=cursor, limit=3)
        found += seqs(page)
        cursor = page["next_from_seq"]
        if page["caught_up"]:
            break
    assert found == list(range(1, 11))
    assert (cursor, page["lag"]) == (10, 0)


def test_an_empty_topic_is_caught_up(api: Api) -> None:
    topic = fresh()
    api.create(topic)
    page = api.diff(topic)
    assert page["records"] == []
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (0, True, 0)


@pytest.mark.parametrize(("limit", "count"), [(None, 256), (0, 256), (1000, 1000), (5000, 1000)])
def test_the_limit_has_a_default_and_a_top(api: Api, limit: int | None, count: int) -> None:
    topic = fresh()
    api.append(topic, *range(1100))
    page = api.diff(topic, **({} if limit is None else {"limit": limit}))
    assert len(page["records"]) == count


def test_absent_fields_are_left_out(api: Api) -> None:
    topic = fresh()
    record = {"data": None, "tag": "t", "node": "n", "meta": {"m": 1}}
    api.append_records(topic, [{"data": None}, record])
    bare, full = api.diff(topic)["records"]
    assert set(bare) == {"$seq", "$ts", "data"}
    assert set(full) == {"$seq", "$ts", "$node", "meta", "data"}
    assert (bare["data"], full["$node"], full["meta"]) == (None, "n", {"m": 1})


def test_tags_are_shown_when_asked_and_meta_unless_asked(api: Api) -> None:
    topic = fresh()
    api.append_records(topic, [{"data": 1, "tag": "t", "meta": {"m": 1}}])
    (record,) = api.diff(topic, include_tags=True, include_meta=False)["records"]
    assert record["$tag"] == "t"
    assert "meta" not in record


@pytest.mark.parametrize(
    ("node", "left"), [("a", [2, 3]), (["a", "b"], [3]), ([], [1, 2, 3]), ("z", [1, 2, 3])]
)
def test_own_records_are_skipped(api: Api, durability: str, node: object, left: list[int]) -> None:
    topic = fresh()
    api.create(topic, durability=durability)
    records: list[Reply] = [{"data": 1, "node": "a"}, {"data": 2, "node": "b"}, {"data": 3}]
    api.append_records(topic, records)
    page = api.diff(topic, node=node)
    assert seqs(page) == left
    assert (page["next_from_seq"], page["caught_up"], page["tombstone"]) == (3, True, None)


def test_skipped_records_move_the_cursor(api: Api) -> None:
    topic = fresh()
    api.append_records(topic, [{"data": n} for n in range(3)], node="me")
    page = api.diff(topic, node="me")
    assert page["records"] == []
    assert page["next_from_seq"] == 3
    assert page["caught_up"] is True


def test_a_topic_can_show_own_records(api: Api) -> None:
    topic = fresh()
    api.create(topic, dedupe_node=False)
    api.append(topic, 1, node="me")
    assert seqs(api.diff(topic, node="me")) == [1]


@pytest.mark.parametrize(
    ("match", "left"),
    [
        ("a:1", [1]),
        (["tag", "Eq", "a:2"], [2]),
        (["tag", "Glob", "a:*"], [1, 2]),
        (["tag", "Glob", "*"], [1, 2, 3]),
        ("none", []),
    ],
)
def test_a_filter_reads_only_fitting_tags(api: Api, match: object, left: list[int]) -> None:
    topic = fresh()
    records = [{"data": 1, "tag": tag} for tag in ("a:1", "a:2", "b:1")]
    api.append_records(topic, [*records, {"data": 1}])
    page = api.diff(topic, match=match)
    assert seqs(page) == left
    assert page["next_from_seq"] == 4
    assert page["tombstone"] is None


def test_a_page_stops_at_its_bytes_but_holds_at_least_one_record(api: Api) -> None:
    topic = fresh()
    api.append(topic, *["x" * 600_000] * 3)
    assert seqs(api.diff(topic)) == [1]
    assert seqs(api.diff(topic, max_batch_bytes=1)) == [1]
    assert seqs(api.diff(topic, max_batch_bytes=8 * 1024 * 1024)) == [1, 2, 3]
    page = api.diff(topic, max_batch_bytes=1_300_000)
    assert (seqs(page), page["next_from_seq"], page["caught_up"]) == ([1, 2], 2, False)


@pytest.mark.parametrize(
    "body",
    [
        {"from_seq": -1},
        {"from_seq": "1"},
        {"from_seq": 1.5},
        {"from_seq": 2**64},
        {"limit": -1},
        {"limit": "many"},
        {"node": 1},
        {"node": [1]},
        {"include_tags": 1},
        {"include_meta": "yes"},
        {"wait_ms": -1},
        {"wait_ms": "long"},
        {"match": ["node", "Eq", "x"]},
        {"match": ["tag", "Like", "x"]},
        {"match": ["tag", "Glob", "x*y"]},
        {"match": ["tag", "Glob", "x"]},
        {"match": 1},
    ],
)
def test_a_bad_read_is_refused(api: Api, body: Reply) -> None:
    topic = fresh()
    api.create(topic)
    refused(api.post(f"topics/{topic}/diff", body), 400, "invalid_request")


def test_a_missing_topic_is_not_found(api: Api) -> None:
    refused(api.post(f"topics/{fresh()}/diff"), 404, "topic_not_found")
    refused(api.post(f"topics/{fresh()}/diff", {"wait_ms": 5000}), 404, "topic_not_found")


def test_a_wait_ends_with_the_first_record(
    api: Api, server: ServerProcess, durability: str
) -> None:
    topic = fresh()
    api.create(topic, durability=durability)
    got: list[Reply] = []

    def wait() -> None:
        with open_client(server.url) as client:
            got.append(Api(client).diff(topic, wait_ms=9000))

    waiter = threading.Thread(target=wait)
    start_s = time.monotonic()
    waiter.start()
    api.append(topic, "news")
    waiter.join()
    assert [record["data"] for record in got[0]["records"]] == ["news"]
    assert time.monotonic() - start_s < 5


def test_a_wait_without_news_ends_empty(api: Api) -> None:
    topic = fresh()
    api.append(topic, 1)
    start_s = time.monotonic()
    page = api.diff(topic, from_seq=1, wait_ms=200)
    assert 0.15 < time.monotonic() - start_s < 3
    assert (page["records"], page["caught_up"], page["next_from_seq"]) == ([], True, 1)


def test_a_wait_is_not_needed_when_something_is_there(api: Api) -> None:
    topic = fresh()
    api.append(topic, 1)
    start_s = time.monotonic()
    assert seqs(api.diff(topic, wait_ms=9000)) == [1]
    assert time.monotonic() - start_s < 3


def test_a_wait_ends_when_the_topic_is_deleted(api: Api, server: ServerProcess) -> None:
    topic = fresh()
    api.create(topic)
    got: list[int] = []

    def wait() -> None:
        with open_client(server.url) as client:
            got.append(Api(client).post(f"topics/{topic}/diff", {"wait_ms": 9000}).status_code)

    waiter = threading.Thread(target=wait)
    start_s = time.monotonic()
    waiter.start()
    time.sleep(0.1)  # let the wait begin; the answer is the same if it has not
    ok(api.delete(f"topics/{topic}"))
    waiter.join()
    assert got == [404]
    assert time.monotonic() - start_s < 5


def test_what_a_cap_took_is_announced(api: Api, durability: str) -> None:
    topic = fresh()
    api.create(topic, cap_records=3, durability=durability)
    api.append(topic, *range(3))
    api.append(topic, *range(2))
    page = api.diff(topic)
    assert page["tombstone"] == {
        "gap_from": 1,
        "gap_to": 2,
        "reason": "cap",
        "missed_estimate": 2,
        "earliest_seq": 3,
        "head_seq": 5,
    }
    assert seqs(page) == [3, 4, 5]
    assert api.diff(topic, from_seq=1)["tombstone"]["gap_from"] == 2
    assert api.diff(topic, from_seq=2)["tombstone"] is None


def test_what_expired_is_announced(api: Api, durability: str) -> None:
    topic = fresh()
    api.create(topic, ttl_ms=40, durability=durability)
    api.append(topic, 1, 2)
    deadline_s = time.monotonic() + 5
    while (page := api.diff(topic))["tombstone"] is None and time.monotonic() < deadline_s:
        pass
    assert page["records"] == []
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (1, 2)
    assert page["tombstone"]["reason"] == "ttl"
    assert (page["next_from_seq"], page["earliest_seq"], page["caught_up"]) == (2, 3, True)


def test_a_reader_of_an_earlier_life_is_told(api: Api, durability: str) -> None:
    topic = fresh()
    api.create(topic, durability=durability)
    api.append(topic, *range(5))
    ok(api.delete(f"topics/{topic}"))
    api.create(topic, durability=durability)
    api.append(topic, "x", "y")
    page = api.diff(topic, from_seq=5)
    assert page["tombstone"]["reason"] == "recreated"
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (1, 2)
    cursor = page["next_from_seq"]
    found = page["records"] or api.diff(topic, from_seq=cursor)["records"]
    assert [record["data"] for record in found] == ["x", "y"]


def test_a_cursor_that_no_life_has_reached_does_not_begin_anew(api: Api, durability: str) -> None:
    topic = fresh()
    api.create(topic, durability=durability)
    api.append(topic, 1, 2)
    for from_seq in (3, 2**64 - 1):
        page = api.diff(topic, from_seq=from_seq)
        assert page["tombstone"]["reason"] == "beyond_head"
        assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (3, from_seq)
        assert page["tombstone"]["missed_estimate"] == 0
        assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 2, True)
    api.append(topic, 3)
    assert api.data(topic, from_seq=2) == [3]
