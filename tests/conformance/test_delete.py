"""Delete records: by seq, by tag, silently and for good."""

import pytest
from tests.conformance.api import Api, Reply, fresh, ok, refused, seqs

from topics.testing.server_process import ServerProcess

TAGS = ("a:1", "a:2", "b:1", "a:1")


@pytest.fixture
def tagged(api: Api, durability: str) -> str:
    """Make a topic with four tagged records and one without a tag."""
    topic = fresh()
    api.create(topic, durability=durability)
    records: list[Reply] = [{"data": n, "tag": tag} for n, tag in enumerate(TAGS)]
    api.append_records(topic, [*records, {"data": 9}])
    return topic


def delete(api: Api, topic: str, **body: object) -> Reply:
    return ok(api.post(f"topics/{topic}/delete", body))


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ({"before_seq": 3}, [3, 4, 5]),
        ({"before_seq": 1}, [1, 2, 3, 4, 5]),
        ({"before_seq": 0}, [1, 2, 3, 4, 5]),
        ({"before_seq": 1000}, []),
        ({"match": "a:1"}, [2, 3, 5]),
        ({"match": ["tag", "Eq", "b:1"]}, [1, 2, 4, 5]),
        ({"match": ["tag", "Glob", "a:*"]}, [3, 5]),
        ({"match": ["tag", "Glob", "*"]}, [5]),
        ({"match": "nothing"}, [1, 2, 3, 4, 5]),
        ({"match": "a:1", "before_seq": 4}, [2, 3, 4, 5]),
        ({"match": "a:1", "before_seq": 0}, [1, 2, 3, 4, 5]),
        ({"match": ["tag", "Glob", "*"], "before_seq": 0}, [1, 2, 3, 4, 5]),
        ({"match": "a:1", "before_seq": None}, [2, 3, 5]),
    ],
)
def test_what_was_named_is_gone_in_silence(
    api: Api, tagged: str, body: Reply, left: list[int]
) -> None:
    reply = delete(api, tagged, **body)
    assert reply["topic"] == tagged
    assert reply["deleted"] == 5 - len(left)
    assert (reply["head_seq"], reply["count"]) == (5, len(left))
    assert reply["earliest_seq"] == (left[0] if left else 6)
    assert (reply["bytes"] == 0) is (not left)
    page = api.diff(tagged)
    assert seqs(page) == left
    assert (page["tombstone"], page["caught_up"], page["next_from_seq"]) == (None, True, 5)


def test_a_second_delete_finds_nothing(api: Api, tagged: str) -> None:
    assert delete(api, tagged, match="a:1")["deleted"] == 2
    assert delete(api, tagged, match="a:1")["deleted"] == 0


def test_a_delete_touches_only_what_is_there(api: Api, tagged: str) -> None:
    delete(api, tagged, match="a:1")
    api.append_records(tagged, [{"data": "later", "tag": "a:1"}])
    assert api.data(tagged)[-1] == "later"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"before_seq": -1},
        {"before_seq": -1, "match": "x"},
        {"before_seq": None},
        {"before_seq": "3"},
        {"before_seq": None, "match": None},
        {"match": 1},
        {"match": []},
        {"match": ["tag", "Eq"]},
        {"match": ["node", "Eq", "x"]},
        {"match": ["tag", "Ne", "x"]},
        {"match": ["tag", "Glob", "x"]},
        {"match": ["tag", "Glob", "*x"]},
        {"match": ["tag", "Glob", "a*b*"]},
        {"match": ["tag", "Eq", 1]},
        {"match": {"tag": "x"}},
    ],
)
def test_a_bad_delete_is_refused_and_deletes_nothing(api: Api, body: Reply) -> None:
    topic = fresh()
    api.append_records(topic, [{"data": 1, "tag": "x"}])
    refused(api.post(f"topics/{topic}/delete", body), 400, "invalid_request")
    assert api.state(topic)["count"] == 1


def test_a_missing_topic_is_not_found(api: Api) -> None:
    refused(api.post(f"topics/{fresh()}/delete", {"before_seq": 1}), 404, "topic_not_found")


def test_the_deleted_stay_deleted_after_a_crash(server: ServerProcess, http1: Api) -> None:
    names = {durability: fresh() for durability in ("disk", "fsync")}
    for durability, topic in names.items():
        http1.create(topic, durability=durability)
        http1.append_records(topic, [{"data": n, "tag": "ab"[n % 2]} for n in range(6)])
        delete(http1, topic, match="a")
    server.kill9()
    server.restart()
    for topic in names.values():
        assert http1.data(topic) == [1, 3, 5]
        assert http1.diff(topic)["tombstone"] is None
