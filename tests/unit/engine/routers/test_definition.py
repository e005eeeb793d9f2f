"""What a router may be, and what it may not."""

import threading
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from tests.unit.engine.place import Place

from topics.engine.routers.link import Link
from topics.errors import (
    LimitReached,
    RequestError,
    RouterCycle,
    RouterNotFound,
    TopicExistsIncompatible,
    TopicNotEmpty,
    TopicNotFound,
)
from topics.model.routers import RouterDefinition
from topics.storage.wal.group_commit import Commitment

AB = {"source": "a", "dest": "b"}
DEADLINE_S = 10.0


@pytest.fixture
def place(place: Place) -> Place:
    for name in ("a", "b", "c"):
        place.log.create(name)
    return place


def test_the_defaults_are_those_of_the_contract() -> None:
    definition = RouterDefinition.from_fields(AB)
    assert definition.as_dict() == {
        "source": "a",
        "dest": "b",
        "preserve_node": True,
        "preserve_tag": True,
        "create_dest": True,
        "filter": None,
        "allow_cycle": False,
        "guarantee": "at_least_once",
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dest": "b"}, "source"),
        ({"source": "a"}, "dest"),
        ({"source": "a", "dest": "a"}, "same topic"),
        ({"source": "no topic", "dest": "b"}, "not a topic name"),
        ({"source": "a", "dest": "../b"}, "not a topic name"),
        ({**AB, "filter": ["tag", "Like", "x"]}, "filter: match knows"),
        ({**AB, "filter": ["tag", "Glob", "x"]}, "trailing star"),
        ({**AB, "filter": 7}, "filter: match must be"),
        ({**AB, "guarantee": "twice"}, "guarantee"),
        ({**AB, "preserve_node": "yes"}, "preserve_node"),
        ({**AB, "preserve_tags": True}, "preserve_tag"),
    ],
)
def test_a_definition_that_cannot_be_used_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        RouterDefinition.from_fields(fields)


def test_a_filter_is_echoed_as_it_came() -> None:
    assert RouterDefinition.from_fields({**AB, "filter": "x"}).filter == "x"
    glob = RouterDefinition.from_fields({**AB, "filter": ["tag", "Glob", "x*"]})
    assert glob.filter == ("tag", "Glob", "x*")
    assert glob.match == ("Glob", "x")


def test_a_router_is_made_changed_and_removed(place: Place) -> None:
    engine = place.log.engine
    assert engine.put_router("a->b", AB) == (RouterDefinition.from_fields(AB), True)
    assert engine.put_router("a->b", AB)[1] is False
    changed, created = engine.put_router("a->b", {**AB, "filter": "x"})
    assert (changed.filter, created) == ("x", False)
    state = engine.router_state("a->b")
    assert (state.router, state.definition, state.forwarded_total, state.lag) == (
        "a->b",
        changed,
        0,
        0,
    )
    assert engine.delete_router("a->b") is True
    assert engine.delete_router("a->b") is False
    with pytest.raises(RouterNotFound, match="a->b"):
        engine.router_state("a->b")


def test_routers_are_listed_by_name(place: Place) -> None:
    engine = place.log.engine
    engine.put_router("z", AB)
    engine.put_router("m", {"source": "b", "dest": "c"})
    assert [state.router for state in engine.routers()] == ["m", "z"]


def test_a_bad_router_name_is_refused(place: Place) -> None:
    with pytest.raises(RequestError, match="not a router name"):
        place.log.engine.put_router(">", AB)


def test_a_source_that_is_not_there_yet_is_made(place: Place) -> None:
    engine = place.log.engine
    engine.put_router("r", {"source": "nowhere", "dest": "b"})
    place.fill("nowhere", 2)
    assert engine.topic_state("b").head_seq == 2


def test_the_destination_is_made_if_it_may_be(place: Place) -> None:
    engine = place.log.engine
    with pytest.raises(TopicNotFound, match="new"):
        engine.put_router("r", {"source": "a", "dest": "new", "create_dest": False})
    assert engine.find_topic("new") is None
    engine.put_router("r", {"source": "a", "dest": "new"})
    assert engine.topic_state("new").head_seq == 0


def test_a_destination_has_one_source(place: Place) -> None:
    engine = place.log.engine
    engine.put_router("r", AB)
    with pytest.raises(TopicExistsIncompatible) as refused:
        engine.put_router("s", {"source": "c", "dest": "b"})
    assert refused.value.reason == "router_dest_fan_in"
    engine.put_router("s", {**AB, "filter": "x"})  # the same source may have several
    with pytest.raises(TopicExistsIncompatible):
        engine.put_router("r", {"source": "c", "dest": "b"})
    engine.delete_router("s")
    engine.put_router("r", {"source": "c", "dest": "b"})  # alone, it may change its source


def test_a_circle_is_refused_with_the_way_round(place: Place) -> None:
    engine = place.log.engine
    engine.put_router("r", AB)
    engine.put_router("s", {"source": "b", "dest": "c"})
    with pytest.raises(RouterCycle) as refused:
        engine.put_router("t", {"source": "c", "dest": "a"})
    assert refused.value.cycle == ["c", "a", "b", "c"]
    assert engine.put_router("t", {"source": "c", "dest": "a", "allow_cycle": True})[1]


def test_only_new_routers_count_against_the_limit(place: Place) -> None:
    place.stop(max_routers=1)
    engine = place.log.engine
    engine.put_router("r", AB)
    with pytest.raises(LimitReached, match="max_routers"):
        engine.put_router("s", {"source": "b", "dest": "c"})
    engine.put_router("r", {**AB, "filter": "x"})


def test_a_topic_takes_its_routers_with_it(place: Place) -> None:
    engine = place.log.engine
    engine.put_router("r", AB)
    engine.put_router("s", {"source": "b", "dest": "c"})
    assert engine.drop_topic("b") == (True, ["r", "s"])
    assert engine.drop_topic("b") == (False, [])
    assert engine.routers() == []
    place.log.create("b")
    place.fill("a", 1)
    assert engine.topic_state("b").head_seq == 0
    place.kill()
    assert place.log.engine.routers() == []


def test_a_topic_that_is_not_dropped_keeps_its_routers(place: Place) -> None:
    engine = place.log.engine
    engine.put_router("r", AB)
    place.fill("a", 1)
    with pytest.raises(TopicNotEmpty):
        engine.drop_topic("a", if_empty=True)
    place.fill("a", 1)
    assert place.log.state("b").count == 2


@pytest.mark.parametrize("end", ["kill", "cut", "stop"])
def test_a_router_outlives_its_process(place: Place, end: str) -> None:
    fields = {**AB, "filter": ["tag", "Glob", "x*"], "preserve_tag": False}
    place.log.engine.put_router("r", fields)
    place.log.engine.put_router("s", {"source": "b", "dest": "c"})
    place.log.engine.delete_router("s")
    getattr(place, end)()
    assert [s.definition for s in place.log.engine.routers()] == [
        RouterDefinition.from_fields(fields)
    ]
    place.log.engine.snapshot()
    getattr(place, end)()
    assert [s.router for s in place.log.engine.routers()] == ["r"]


def test_a_new_filter_is_not_for_what_the_old_one_held_back(place: Place) -> None:
    place.log.engine.put_router("r", {**AB, "filter": "x"})
    place.fill("a", 1)
    place.kill()  # which looks at the record, and makes no copy
    place.log.engine.put_router("r", AB)
    place.stop()
    assert place.log.state("b").count == 0
    place.fill("a", 2)
    assert place.log.state("b").count == 2


@pytest.mark.parametrize("end", ["kill", "cut", "stop"])
def test_a_router_that_moved_is_found_where_it_went(place: Place, end: str) -> None:
    engine = place.log.engine
    engine.put_router("r", AB)
    place.fill("a", 2)
    engine.put_router("r", {"source": "a", "dest": "c"})
    place.fill("a", 3)
    assert (place.log.state("b").count, place.log.state("c").count) == (2, 3)
    place.log.sync()
    getattr(place, end)()
    place.fill("a", 1)
    assert (place.log.state("b").count, place.log.state("c").count) == (2, 4)


def snapshot_after_commit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a snapshot taken as soon as the frame of a router is safe."""
    engine = place.log.engine
    settle = engine._routers._settle
    commit = engine.shards[0].commit.commit

    def commit_then_snapshot(ticket: Commitment) -> None:
        commit(ticket)
        monkeypatch.undo()
        engine.snapshot()

    def settle_then_wait(links: Iterable[Link]) -> None:
        settle(links)
        monkeypatch.setattr(engine.shards[0].commit, "commit", commit_then_snapshot)

    monkeypatch.setattr(engine._routers, "_settle", settle_then_wait)


def test_a_snapshot_knows_a_router_as_soon_as_its_frame_is_safe(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot_after_commit(place, monkeypatch)
    place.log.engine.put_router("r", AB)
    place.kill()
    assert [router.router for router in place.log.engine.routers()] == ["r"]


def test_a_snapshot_does_not_bring_a_removed_router_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.log.engine.put_router("r", AB)
    snapshot_after_commit(place, monkeypatch)
    place.log.engine.delete_router("r")
    place.kill()
    assert place.log.engine.routers() == []


@pytest.mark.parametrize("change", [{"durability": "fsync"}, {"discard": "reject"}])
def test_no_router_begins_while_the_config_that_its_copies_follow_changes(
    place: Place, monkeypatch: pytest.MonkeyPatch, change: dict[str, str]
) -> None:
    engine = place.log.engine
    create = engine.registry.create
    free: list[bool] = []

    def look() -> None:
        free.append(engine._routers._lock.acquire(blocking=False))

    def look_then_create(name: str, changes: Mapping[str, Any]) -> bool:
        other = threading.Thread(target=look)
        other.start()
        other.join(DEADLINE_S)
        return create(name, changes)

    monkeypatch.setattr(engine.registry, "create", look_then_create)
    place.log.create("b", **change)
    assert free == [False]
