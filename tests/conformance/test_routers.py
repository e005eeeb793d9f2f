"""Routers: copies from one topic to another."""

import time
from itertools import pairwise

import pytest
from tests.conformance.api import CLASSES, Api, Reply, fresh, ok, refused

from topics.testing.server_process import ServerProcess

DEFAULTS: Reply = {
    "preserve_node": True,
    "preserve_tag": True,
    "create_dest": True,
    "filter": None,
    "allow_cycle": False,
    "guarantee": "at_least_once",
}


def route(api: Api, source: str, dest: str, **fields: object) -> Reply:
    """Make a router, and its source when it is not there yet."""
    assert api.put(f"topics/{source}").status_code in {200, 201}
    body = {"source": source, "dest": dest, **fields}
    return ok(api.put(f"routers/{source}->{dest}", body), 201)


@pytest.fixture
def pair(api: Api, durability: str) -> tuple[str, str]:
    """Make a source and a destination of one class, without a router."""
    source, dest = fresh("src"), fresh("dst")
    api.create(source, durability=durability)
    api.create(dest, durability=durability)
    return source, dest


def test_a_router_echoes_all_its_fields(api: Api) -> None:
    source, dest = fresh("src"), fresh("dst")
    reply = route(api, source, dest)
    assert {name: reply[name] for name in DEFAULTS} == DEFAULTS
    assert (reply["source"], reply["dest"], reply["created"]) == (source, dest, True)
    assert reply["router"] == f"{source}->{dest}"
    again = ok(api.put(f"routers/{source}->{dest}", {"source": source, "dest": dest}))
    assert again["created"] is False
    shown = ok(api.get(f"routers/{source}->{dest}"))
    assert {name: shown[name] for name in DEFAULTS} == DEFAULTS
    assert shown["forwarded_total"] == 0


def test_a_copy_is_there_right_after_the_write(api: Api, pair: tuple[str, str]) -> None:
    source, dest = pair
    route(api, source, dest)
    record = {"data": {"a": 1.50}, "tag": "t", "node": "n", "meta": {"m": 1}}
    for number in range(1, 4):
        api.append_records(source, [record])
        records = api.diff(dest, include_tags=True)["records"]
        assert len(records) == number
        assert records[-1]["$seq"] == number
        assert {name: records[-1][name] for name in ("data", "$tag", "$node", "meta")} == {
            "data": {"a": 1.5},
            "$tag": "t",
            "$node": "n",
            "meta": {"m": 1},
        }
    assert ok(api.get(f"routers/{source}->{dest}"))["forwarded_total"] == 3


def test_the_state_of_the_destination_shows_the_copy_too(api: Api, pair: tuple[str, str]) -> None:
    source, dest = pair
    route(api, source, dest)
    api.append(source, 1, 2)
    assert api.state(dest)["head_seq"] == 2


def test_what_was_there_before_the_router_or_not_the_order_is_the_same(
    api: Api, pair: tuple[str, str]
) -> None:
    source, dest = pair
    route(api, source, dest)
    for number in range(30):
        api.append(source, number, -number)
    assert api.data(dest) == api.data(source)


@pytest.mark.parametrize(("kept", "field"), [("preserve_node", "$node"), ("preserve_tag", "$tag")])
def test_node_and_tag_can_be_dropped(api: Api, kept: str, field: str) -> None:
    source, dest = fresh("src"), fresh("dst")
    route(api, source, dest, **{kept: False})
    api.append_records(source, [{"data": 1, "tag": "t", "node": "n"}])
    (record,) = api.diff(dest, include_tags=True)["records"]
    assert field not in record
    assert {"$node", "$tag"} - {field} <= set(record)


@pytest.mark.parametrize(
    ("given", "copied"),
    [("a:1", [0]), (["tag", "Eq", "b"], [2]), (["tag", "Glob", "a:*"], [0, 1])],
)
def test_a_filter_copies_only_what_fits(api: Api, given: object, copied: list[int]) -> None:
    source, dest = fresh("src"), fresh("dst")
    route(api, source, dest, filter=given)
    tags = ("a:1", "a:2", "b")
    api.append_records(source, [{"data": n, "tag": tag} for n, tag in enumerate(tags)])
    api.append(source, "without")
    assert api.data(dest) == copied


def test_exactly_once_stamps_a_key(api: Api) -> None:
    source, dest = fresh("src"), fresh("dst")
    route(api, source, dest, guarantee="exactly_once")
    api.append_records(source, [{"data": 1, "meta": {"m": 1}}, {"data": 2}])
    first, second = api.diff(dest)["records"]
    assert first["meta"]["m"] == 1
    assert first["meta"]["_topics_router"] != second["meta"]["_topics_router"]


def test_one_source_has_many_destinations(api: Api) -> None:
    source, dests = fresh("src"), [fresh("dst") for _ in range(5)]
    for dest in dests:
        route(api, source, dest)
    api.append(source, 1, 2)
    assert [api.data(dest) for dest in dests] == [[1, 2]] * 5


def test_copies_travel_on(api: Api) -> None:
    names = [fresh("hop") for _ in range(4)]
    for source, dest in pairwise(names):
        route(api, source, dest)
    api.append(names[0], "far")
    assert api.data(names[-1]) == ["far"]


def test_deletes_do_not_travel(api: Api) -> None:
    source, dest = fresh("src"), fresh("dst")
    route(api, source, dest)
    api.append(source, 1, 2)
    assert api.data(dest) == [1, 2]
    ok(api.post(f"topics/{source}/delete", {"before_seq": 3}))
    assert api.data(dest) == [1, 2]


@pytest.mark.parametrize(
    "change",
    [
        {"source": None},
        {"dest": None},
        {"source": "no good"},
        {"dest": "no good"},
        {"filter": ["tag", "Glob", "x"]},
        {"filter": 1},
        {"guarantee": "never"},
        {"preserve_node": "yes"},
        {"allow_cycle": 1},
    ],
)
def test_a_bad_router_is_refused(api: Api, change: Reply) -> None:
    source = fresh("src")
    api.create(source)
    body = {"source": source, "dest": fresh("dst"), **change}
    body = {name: value for name, value in body.items() if value is not None}
    name = fresh("r")
    refused(api.put(f"routers/{name}", body), 400, "invalid_request")
    refused(api.get(f"routers/{name}"), 404, "router_not_found")


def test_a_router_to_itself_is_refused(api: Api) -> None:
    topic = fresh()
    body = {"source": topic, "dest": topic, "allow_cycle": True}
    refused(api.put(f"routers/{fresh('r')}", body), 400, "invalid_request")


@pytest.mark.parametrize("name", ["-x", ">x", "a%20b", "x" * 256])
def test_a_bad_router_name_is_refused(api: Api, name: str) -> None:
    body = {"source": fresh(), "dest": fresh()}
    refused(api.put(f"routers/{name}", body), 400, "invalid_request")
    refused(api.get(f"routers/{name}"), 400, "invalid_request")


def test_the_destination_is_created_unless_told_otherwise(api: Api) -> None:
    source, dest = fresh("src"), fresh("dst")
    api.create(source)
    body = {"source": source, "dest": dest, "create_dest": False}
    refused(api.put(f"routers/{source}->{dest}", body), 404, "topic_not_found")
    route(api, source, dest)
    assert api.state(dest)["head_seq"] == 0


def test_a_cycle_is_refused_with_its_names(api: Api) -> None:
    one, two, three = fresh("c"), fresh("c"), fresh("c")
    route(api, one, two)
    route(api, two, three)
    response = api.put(f"routers/{three}->{one}", {"source": three, "dest": one})
    cycle = refused(response, 409, "router_cycle")["cycle"]
    assert cycle[0] == cycle[-1]
    assert set(cycle) == {one, two, three}
    assert len(cycle) == 4


def test_an_allowed_cycle_ends(api: Api) -> None:
    one, two = fresh("c"), fresh("c")
    route(api, one, two)
    route(api, two, one, allow_cycle=True)
    api.append(one, "round")
    heads: list[tuple[int, int]] = []
    deadline_s = time.monotonic() + 5
    while len(heads) < 20 or heads[-20:] != heads[-1:] * 20:
        assert time.monotonic() < deadline_s, "it goes round and round"
        heads.append((api.state(one)["head_seq"], api.state(two)["head_seq"]))
    assert 1 <= heads[-1][0] < 1000


def test_a_second_source_into_one_destination_is_refused(api: Api) -> None:
    first, second, dest = fresh("src"), fresh("src"), fresh("dst")
    route(api, first, dest)
    api.create(second)
    response = api.put(f"routers/{second}->{dest}", {"source": second, "dest": dest})
    detail = refused(response, 409, "topic_exists_incompatible")
    assert detail["reason"] == "router_dest_fan_in"


def test_a_full_destination_holds_the_cursor(api: Api) -> None:
    source, dest = fresh("src"), fresh("dst")
    api.create(dest, cap_records=2, discard="reject")
    route(api, source, dest)
    api.append(source, 1)
    api.append(source, 2)
    api.append(source, 3)
    assert api.data(dest) == [1, 2]
    ok(api.post(f"topics/{dest}/delete", {"before_seq": 2}))
    deadline_s = time.monotonic() + 5
    while api.data(dest) != [2, 3] and time.monotonic() < deadline_s:
        pass
    assert api.data(dest) == [2, 3]


def test_the_list_can_be_narrowed_and_goes_by_pages(api: Api) -> None:
    source = fresh("list")
    dests = [f"{source}.{number}" for number in range(3)]
    for dest in dests:
        route(api, source, dest)
    everything = ok(api.get("routers", prefix=source))["routers"]
    assert [entry["dest"] for entry in everything] == dests
    (only,) = ok(api.get("routers", dest=dests[1]))["routers"]
    assert only["router"] == f"{source}->{dests[1]}"
    first = ok(api.get("routers", source=source, page_size=2))
    assert len(first["routers"]) == 2
    cursor = first["next_cursor"]
    rest = ok(api.get("routers", source=source, page_size=2, cursor=cursor))
    assert [entry["dest"] for entry in rest["routers"]] == dests[2:]
    assert "next_cursor" not in rest
    refused(api.get("routers", cursor="!"), 400, "invalid_request")


def test_a_deleted_router_forwards_no_more(api: Api) -> None:
    source, dest = fresh("src"), fresh("dst")
    route(api, source, dest)
    api.append(source, 1)
    assert ok(api.delete(f"routers/{source}->{dest}"))["deleted"] is True
    assert ok(api.delete(f"routers/{source}->{dest}"))["deleted"] is False
    api.append(source, 2)
    assert api.data(dest) == [1]
    refused(api.get(f"routers/{source}->{dest}"), 404, "router_not_found")


def test_copies_are_the_same_after_a_crash(server: ServerProcess, http1: Api) -> None:
    pairs = []
    for guarantee in ("at_least_once", "exactly_once"):
        for durability in CLASSES[2:]:
            source, dest = fresh("src"), fresh("dst")
            http1.create(source, durability=durability)
            http1.create(dest, durability=durability)
            route(http1, source, dest, guarantee=guarantee)
            http1.append(source, *range(20))
            pairs.append((source, dest, http1.diff(dest)["records"]))
    server.kill9()
    server.restart()
    for source, dest, before in pairs:
        assert http1.diff(dest)["records"] == before
        http1.append(source, "after")
        assert http1.data(dest) == [*range(20), "after"]
