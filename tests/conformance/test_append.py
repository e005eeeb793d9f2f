"""Append: what is written, what is refused, what is written once."""

import threading

import pytest
from tests.conformance.api import Api, Reply, fresh, ok, open_client, refused, seqs

from topics.testing.server_process import ServerProcess

FIELDS = {"topic", "first_seq", "last_seq", "head_seq", "count", "created", "deduped"}


def test_the_first_write_creates_the_topic(api: Api) -> None:
    topic = fresh()
    reply = ok(api.post(f"topics/{topic}", {"records": [{"data": 1}]}), 201)
    assert set(reply) >= FIELDS | {"seqs"}
    assert reply["topic"] == topic
    assert (reply["created"], reply["deduped"]) == (True, False)
    again = ok(api.post(f"topics/{topic}", {"records": [{"data": 2}]}))
    assert again["created"] is False


def test_a_batch_gets_contiguous_seqs_in_order(api: Api, durability: str) -> None:
    topic = fresh()
    api.create(topic, durability=durability)
    api.append(topic, "a")
    reply = api.append(topic, "b", "c", "d")
    assert (reply["first_seq"], reply["last_seq"], reply["seqs"]) == (2, 4, [2, 3, 4])
    assert (reply["head_seq"], reply["count"]) == (4, 3)
    assert api.data(topic) == ["a", "b", "c", "d"]


def test_seqs_are_left_out_when_asked(api: Api) -> None:
    response = api.post(f"topics/{fresh()}", {"records": [{"data": 1}]}, return_seqs=False)
    reply = ok(response, 201)
    assert "seqs" not in reply
    assert (reply["first_seq"], reply["last_seq"]) == (1, 1)


def test_seqs_are_left_out_for_whoever_does_not_want_them(api: Api) -> None:
    topic = fresh()
    api.create(topic, durability="disk")
    for first_seq, wanted in ((1, True), (3, False), (5, True)):
        body = {"records": [{"data": 1}, {"data": 2}]}
        reply = ok(api.post(f"topics/{topic}", body, return_seqs=wanted))
        assert (reply["first_seq"], reply["last_seq"], reply["count"]) == (
            first_seq,
            first_seq + 1,
            2,
        )
        assert reply.get("seqs") == ([first_seq, first_seq + 1] if wanted else None)
        assert {"head_seq", "performance", "created", "deduped"} < reply.keys()
    refused = api.post(f"topics/{topic}", {"records": [{"data": 1}]}, return_seqs="perhaps")
    assert refused.status_code == 400
    assert api.state(topic)["head_seq"] == 6


def test_the_time_of_the_disk_is_told(api: Api, durability: str) -> None:
    topic = fresh()
    api.create(topic, durability=durability)
    performance = api.append(topic, 1)["performance"]
    assert performance["wal_append_ms"] >= 0
    if durability == "fsync":
        assert performance["fsync_ms"] > 0
    else:
        assert performance["fsync_ms"] == 0.0


def test_the_node_of_the_batch_is_a_default(api: Api) -> None:
    topic = fresh()
    api.append_records(topic, [{"data": 1}, {"data": 2, "node": "own"}], node="batch")
    assert [record["$node"] for record in api.diff(topic)["records"]] == ["batch", "own"]


def test_a_key_in_the_body_writes_once(api: Api, durability: str) -> None:
    topic = fresh()
    api.create(topic, durability=durability)
    first = api.append(topic, 1, 2, idempotency_key="k")
    api.append(topic, 3)
    again = api.append(topic, 1, 2, idempotency_key="k")
    assert (first["deduped"], again["deduped"]) == (False, True)
    assert again["seqs"] == first["seqs"] == [1, 2]
    assert api.data(topic) == [1, 2, 3]


def _with_key(api: Api, topic: str, header: str, body: Reply) -> Reply:
    response = api.client.post(
        f"/v0/topics/{topic}",
        json={"records": [{"data": 1}], **body},
        headers={"Idempotency-Key": header},
    )
    return ok(response, response.status_code)


def test_a_key_in_the_header_writes_once(api: Api) -> None:
    topic = fresh()
    assert _with_key(api, topic, "k", {})["deduped"] is False
    assert _with_key(api, topic, "k", {})["deduped"] is True
    assert api.state(topic)["head_seq"] == 1


def test_the_key_in_the_body_wins(api: Api) -> None:
    topic = fresh()
    assert _with_key(api, topic, "header", {"idempotency_key": "body"})["deduped"] is False
    assert _with_key(api, topic, "header", {})["deduped"] is False
    assert _with_key(api, topic, "other", {"idempotency_key": "body"})["deduped"] is True


def test_keys_of_different_topics_do_not_meet(api: Api) -> None:
    for topic in (fresh(), fresh()):
        assert api.append(topic, 1, idempotency_key="same")["deduped"] is False


def test_a_key_is_forgotten_after_its_window(api: Api) -> None:
    topic = fresh()
    api.create(topic, idempotency_window_ms=1)
    api.append(topic, 1, idempotency_key="k")
    api.post(f"topics/{topic}/diff", {"from_seq": 1, "wait_ms": 50})
    assert api.append(topic, 1, idempotency_key="k")["deduped"] is False


def test_a_key_has_at_most_256_characters(api: Api) -> None:
    topic = fresh()
    body = {"records": [{"data": 1}], "idempotency_key": "é" * 257}
    refused(api.post(f"topics/{topic}", body), 400, "invalid_request")
    assert api.append(topic, 1, idempotency_key="é" * 256)["deduped"] is False


def test_a_producer_writes_each_number_once(api: Api, durability: str) -> None:
    topic = fresh()
    api.create(topic, durability=durability)
    first = api.append(topic, "a", producer_id="p", producer_seq=1)
    api.append(topic, "b", producer_id="p", producer_seq=9)
    again = api.append(topic, "a", producer_id="p", producer_seq=1)
    assert again["deduped"] is True
    assert again["first_seq"] == first["first_seq"]
    assert api.data(topic) == ["a", "b"]


def test_a_whole_number_may_be_written_as_a_float(api: Api) -> None:
    topic = fresh()
    body = {"records": [{"data": 1}], "producer_id": "p", "producer_seq": 3.0}
    ok(api.post(f"topics/{topic}", body), 201)
    assert api.append(topic, 1, producer_id="p", producer_seq=3)["deduped"] is True
    refused(api.post(f"topics/{topic}", {**body, "producer_seq": 3.5}), 400, "invalid_request")


def test_create_false_creates_nothing(api: Api) -> None:
    topic = fresh()
    body = {"records": [{"data": 1}], "create": False}
    refused(api.post(f"topics/{topic}", body), 404, "topic_not_found")
    refused(api.get(f"topics/{topic}"), 404, "topic_not_found")


def test_the_config_of_a_write_is_used_only_when_it_creates(api: Api) -> None:
    topic = fresh()
    api.append(topic, 1, config={"cap_records": 5, "durability": "memory"})
    api.append(topic, 1, config={"cap_records": 9})
    config = api.state(topic)["config"]
    assert (config["cap_records"], config["durability"]) == (5, "memory")


def test_backpressure_can_be_refused(api: Api) -> None:
    assert api.append(fresh(), 1, disable_backpressure=True)["count"] == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"records": []},
        {"records": None},
        {"records": {"data": 1}},
        {"records": [1]},
        {"records": [{}]},
        {"records": [{"data": 1}, {"tag": "no data"}]},
        {"records": [{"data": 1, "meta": 1}]},
        {"records": [{"data": 1, "meta": []}]},
        {"records": [{"data": 1, "tag": 1}]},
        {"records": [{"data": 1, "node": {}}]},
        {"records": [{"data": 1}], "node": 1},
        {"records": [{"data": 1}], "idempotency_key": 1},
        {"records": [{"data": 1}], "create": "no"},
        {"records": [{"data": 1}], "config": {"colour": "red"}},
        {"records": [{"data": 1}], "config": {"type": "stack"}},
        {"records": [{"data": 1, "tag": "é" * 129}]},
        {"records": [{"data": 1, "node": "é" * 65}]},
        {"records": [{"data": 1, "meta": {str(n): n for n in range(65)}}]},
        {"records": [{"data": 1, "meta": {"k": "x" * 16_384}}]},
    ],
)
def test_a_bad_write_is_refused_and_leaves_no_trace(api: Api, body: Reply) -> None:
    topic = fresh()
    refused(api.post(f"topics/{topic}", body), 400, "invalid_request")
    refused(api.get(f"topics/{topic}"), 404, "topic_not_found")


def test_the_largest_allowed_values_are_allowed(api: Api) -> None:
    topic = fresh()
    meta = {str(n): n for n in range(64)}
    api.append_records(topic, [{"data": 1, "tag": "é" * 128, "node": "é" * 64, "meta": meta}])
    (record,) = api.diff(topic, include_tags=True)["records"]
    assert (record["$tag"], record["$node"], record["meta"]) == ("é" * 128, "é" * 64, meta)


def test_a_field_that_nobody_knows_is_refused_with_the_nearest_name(api: Api) -> None:
    topic = fresh()
    api.append(topic, 1)
    for body, field, nearest in (
        ({"records": [{"data": 1, "tags": "x"}]}, "tags", "tag"),
        ({"records": [{"data": 1}], "nodes": "n"}, "nodes", "node"),
        ({"records": [{"data": 1}], "topic": "t"}, "topic", None),
        ({"records": [{"data": 1}], "config": {"cap_record": 1}}, "cap_record", "cap_records"),
    ):
        response = api.post(f"topics/{topic}", body)
        detail = refused(response, 400, "invalid_request")
        assert (detail["field"], detail.get("nearest")) == (field, nearest)
        assert f"unknown field {field!r}: " in response.text
        assert nearest is None or f"did you mean {nearest!r}?" in response.text
    assert api.state(topic)["head_seq"] == 1


def test_a_key_is_known_where_there_are_no_partitions(api: Api) -> None:
    topic = fresh()
    api.append_records(topic, [{"data": 1, "key": "k"}])
    (record,) = api.diff(topic, include_tags=True)["records"]
    assert set(record) == {"$seq", "$ts", "data"}


def test_what_is_not_a_record_may_not_be_large(api: Api) -> None:
    body = {"records": [{"data": 1}], "config": {"dead_letter": "x" * 65_536}}
    response = api.post(f"topics/{fresh()}", body)
    refused(response, 400, "invalid_request")
    assert "'config' is longer than 65536 bytes" in response.text


def test_more_than_ten_thousand_records_are_too_many(api: Api) -> None:
    topic = fresh()
    records = [{"data": 0}] * 10_001
    refused(api.post(f"topics/{topic}", {"records": records}), 400, "batch_too_large")
    assert api.append_records(topic, records[1:])["count"] == 10_000


def test_a_record_has_at_most_a_mebibyte(api: Api) -> None:
    topic = fresh()
    largest = "x" * (1024 * 1024 - 2)
    body = {"records": [{"data": "small"}, {"data": largest + "x"}]}
    refused(api.post(f"topics/{topic}", body), 400, "record_too_large")
    assert api.append(topic, largest)["first_seq"] == 1


def test_data_and_meta_together_have_at_most_a_mebibyte(api: Api) -> None:
    body = {"records": [{"data": "x" * (1024 * 1024 - 10), "meta": {"k": "y" * 100}}]}
    refused(api.post(f"topics/{fresh()}", body), 400, "record_too_large")


def test_a_full_topic_refuses_the_whole_batch(api: Api, durability: str) -> None:
    topic = fresh()
    api.create(topic, cap_records=3, discard="reject", durability=durability)
    api.append(topic, 1, 2)
    body = {"records": [{"data": 3}, {"data": 4}]}
    refused(api.post(f"topics/{topic}", body), 422, "topic_full")
    assert api.state(topic)["head_seq"] == 2
    assert api.append(topic, 3)["first_seq"] == 3
    refused(api.post(f"topics/{topic}", {"records": [{"data": 4}]}), 422, "topic_full")
    ok(api.post(f"topics/{topic}/delete", {"before_seq": 2}))
    assert api.append(topic, 4)["first_seq"] == 4


def test_a_batch_larger_than_the_cap_can_never_fit(api: Api) -> None:
    topic = fresh()
    api.create(topic, cap_records=3, discard="reject")
    body = {"records": [{"data": n} for n in range(4)]}
    refused(api.post(f"topics/{topic}", body), 400, "record_too_large")


def test_times_never_go_back(api: Api) -> None:
    topic = fresh()
    for n in range(5):
        api.append(topic, n, n)
    stamps = [record["$ts"] for record in api.diff(topic)["records"]]
    assert stamps == sorted(stamps)
    assert all(isinstance(stamp, int) for stamp in stamps)


def test_writers_at_once_share_dense_seqs(api: Api, server: ServerProcess, durability: str) -> None:
    topic = fresh()
    api.create(topic, durability=durability)
    given: list[int] = []

    def write(name: str) -> None:
        with open_client(server.url) as client:
            for n in range(10):
                given.extend(Api(client).append(topic, [name, n], [name, n])["seqs"])

    writers = [threading.Thread(target=write, args=(f"w{n}",)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(given) == list(range(1, 81))
    page = api.diff(topic, limit=1000)
    assert seqs(page) == list(range(1, 81))
    for name in ("w0", "w1", "w2", "w3"):
        own = [r["data"][1] for r in page["records"] if r["data"][0] == name]
        assert own == [n for n in range(10) for _ in range(2)]


def test_keys_and_producers_outlive_a_crash(server: ServerProcess, http1: Api) -> None:
    names = {durability: fresh() for durability in ("disk", "fsync")}
    for durability, topic in names.items():
        http1.create(topic, durability=durability)
        http1.append(topic, "k", idempotency_key="k")
        http1.append(topic, "p", producer_id="p", producer_seq=3)
    server.kill9()
    server.restart()
    for topic in names.values():
        assert http1.append(topic, "k", idempotency_key="k")["deduped"] is True
        assert http1.append(topic, "p", producer_id="p", producer_seq=3)["deduped"] is True
        assert http1.data(topic) == ["k", "p"]
