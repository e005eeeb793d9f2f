"""Dead letters that go back: as they were, in order, once, and never past one that cannot."""

from typing import Any

import msgspec
import pytest
from tests.unit.engine.place import Place
from tests.unit.engine.queues.test_claim import claim, queue
from tests.unit.engine.queues.test_dead_letters import dead, fail

from topics.errors import (
    Forbidden,
    NotAQueue,
    RequestError,
    TopicExistsIncompatible,
    TopicNotFound,
)
from topics.model.queues import Redriven
from topics.testing.hostile_faults import FaultPlan, PowerCut


def anything(_: str) -> None:
    """Let every name pass."""


def redrive(place: Place, *, to: str | None = None, wanted: int = 1000) -> Redriven:
    engine = place.log.engine
    topic = engine.topic("dead")
    return engine.redrive(topic, to=to, wanted=wanted, check_name=anything)


def die(place: Place, count: int, **config: Any) -> None:  # noqa: ANN401 - of a topic
    """Let so many jobs become dead letters."""
    queue(place, count, max_deliveries=1, dead_letter="dead", **config)
    for _ in range(count):
        fail(place)
    assert claim(place) == []
    assert len(dead(place)) == count


def jobs(place: Place, name: str = "jobs") -> list[object]:
    return [record.data for record in place.log.diff(name).records]


def letter(queue_name: str, data: object) -> dict[str, Any]:
    return {"data": data, "meta": {"$dead_letter_from": queue_name}}


def test_letters_go_back_in_order_and_leave_the_dead_letter_topic(place: Place) -> None:
    die(place, 3)
    moved = redrive(place)
    assert (moved.moved, moved.queues, moved.left, moved.stopped) == (3, {"jobs": 3}, 0, None)
    assert jobs(place) == [1, 2, 3]
    assert dead(place) == []
    assert claim(place) == [4]


def test_a_job_comes_back_as_it_was(place: Place) -> None:
    queue(place, 0, max_deliveries=1, dead_letter="dead")
    place.log.append_json(
        "jobs", b'{"records":[{"data":[ 1.0 ],"meta":{"a":{"b": 2}},"tag":"t","node":"p"}]}'
    )
    fail(place)
    claim(place)
    redrive(place)
    (record,) = place.log.diff("jobs").records
    assert (record.node, record.tag, bytes(record.data_json)) == ("p", "t", b"[ 1.0 ]")
    assert msgspec.json.format(bytes(record.meta_json), indent=-1) == b'{"a":{"b":2}}'


def test_a_meta_that_had_no_room_for_more_comes_back_whole(place: Place) -> None:
    queue(place, 0, max_deliveries=1, dead_letter="dead")
    meta = {f"k{number}": number for number in range(16)}
    place.log.append("jobs", [{"data": 1, "meta": meta}])
    fail(place)
    claim(place)
    redrive(place)
    assert place.log.diff("jobs").records[0].meta == meta


def test_no_more_than_wanted_are_moved(place: Place) -> None:
    die(place, 5)
    assert redrive(place, wanted=2).left == 3
    assert jobs(place) == [1, 2]
    assert redrive(place, wanted=2).moved == 2
    assert jobs(place) == [1, 2, 3, 4]


def test_letters_of_several_queues_find_their_own(place: Place) -> None:
    for name in ("a", "b"):
        place.log.create(name, type="queue")
    place.log.append("dead", [letter("a", 1), letter("b", 2), letter("b", 3), letter("a", 4)])
    assert redrive(place).queues == {"a": 2, "b": 2}
    assert (jobs(place, "a"), jobs(place, "b")) == ([1, 4], [2, 3])


def test_it_stops_before_the_first_letter_that_cannot_go_back(place: Place) -> None:
    place.log.create("a", type="queue")
    place.log.append("dead", [letter("a", 1), letter("gone", 2), letter("a", 3)])
    moved = redrive(place)
    assert moved.moved == 1
    assert moved.stopped is not None
    assert moved.stopped.code == "topic_not_found"
    assert [data for data, _ in dead(place)] == [2, 3]
    with pytest.raises(TopicNotFound):
        redrive(place)
    assert redrive(place, to="a").moved == 2
    assert jobs(place, "a") == [1, 2, 3]


def test_a_queue_that_is_full_keeps_the_rest_where_it_is(place: Place) -> None:
    place.log.create("a", type="queue", cap_records=2, discard="reject")
    place.log.append("dead", [letter("a", number) for number in range(1, 5)])
    moved = redrive(place)
    assert moved.moved == 2
    assert moved.stopped is not None
    assert moved.stopped.code == "topic_full"
    assert [data for data, _ in dead(place)] == [3, 4]


def test_a_name_that_is_refused_is_not_written_to(place: Place) -> None:
    die(place, 1)
    engine = place.log.engine

    def refuse(name: str) -> None:
        raise Forbidden(name)

    with pytest.raises(Forbidden):
        engine.redrive(engine.topic("dead"), to=None, wanted=1, check_name=refuse)
    assert len(dead(place)) == 1


def test_only_a_log_can_be_redriven_and_only_into_a_queue(place: Place) -> None:
    place.log.create("dead", type="queue")
    with pytest.raises(TopicExistsIncompatible):
        redrive(place)
    place.log.drop("dead")
    place.log.append("dead", [{"data": 1}])
    place.log.create("log")
    with pytest.raises(NotAQueue):
        redrive(place, to="log")
    with pytest.raises(RequestError, match="does not say"):
        redrive(place)


@pytest.mark.crash
@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_power_cut_at_any_moment_neither_loses_nor_doubles_a_letter(durability: str) -> None:
    cuts = 0
    for at in range(200):
        place = Place()
        die(place, 3, durability=durability)
        place.disk.arm(FaultPlan().cut_power(at_call=at))
        try:
            redrive(place)
        except PowerCut:
            cuts += 1
        else:
            break
        place.cut()
        assert {*jobs(place), *(data for data, _ in dead(place))} == {1, 2, 3}
        redrive(place)
        assert jobs(place) == [1, 2, 3]
        assert dead(place) == []
    assert cuts > 3
