"""Dead letters that go back: as they were, in order, once, and never past one that cannot."""

from typing import Any

import msgspec
import pytest
from tests.unit.engine.place import Place
from tests.unit.engine.queues.test_claim import claim, queue
from tests.unit.engine.queues.test_dead_letters import dead, fail

from topics.engine.request import build_write
from topics.errors import (
    Forbidden,
    NotAQueue,
    RequestError,
    TopicExistsIncompatible,
    TopicNotFound,
)
from topics.model.queues import Redriven
from topics.testing.built_segments import build_segment, stage
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


def die_partitioned(place: Place) -> None:
    """Let a job become a letter in the first partition."""
    queue(place, 0, max_deliveries=1, dead_letter="dead")
    place.log.append("jobs", [{"data": 1, "tag": "a"}])
    fail(place)
    assert claim(place) == []
    assert place.log.state("dead-0").count == 1


def jobs(place: Place, name: str = "jobs") -> list[object]:
    return [record.data for record in place.log.diff(name).records]


def letter(queue_name: str, data: object) -> dict[str, Any]:
    return {"data": data, "meta": {"$dead_letter_from": queue_name}}


def deliver(place: Place, letters: list[dict[str, Any]]) -> None:
    """Put letters into the dead-letter topic, as the server does."""
    engine = place.log.engine
    write = build_write(letters, engine.config, dead_letters=True)
    topic, _ = engine.registry.for_write("dead", write)
    engine.append(topic, write)


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
        place.log.create(name, type="queue", dead_letter="dead")
    deliver(place, [letter("a", 1), letter("b", 2), letter("b", 3), letter("a", 4)])
    assert redrive(place).queues == {"a": 2, "b": 2}
    assert (jobs(place, "a"), jobs(place, "b")) == ([1, 4], [2, 3])


def test_it_stops_before_the_first_letter_that_cannot_go_back(place: Place) -> None:
    place.log.create("a", type="queue", dead_letter="dead")
    deliver(place, [letter("a", 1), letter("gone", 2), letter("a", 3)])
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
    place.log.create("a", type="queue", cap_records=2, discard="reject", dead_letter="dead")
    deliver(place, [letter("a", number) for number in range(1, 5)])
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


@pytest.mark.parametrize("names", [None, "other"])
def test_a_letter_goes_to_no_queue_that_does_not_name_this_topic(
    place: Place, names: str | None
) -> None:
    place.log.create("mine", type="queue", dead_letter="dead")
    place.log.create("theirs", type="queue", dead_letter=names)
    deliver(place, [letter("mine", 1), letter("theirs", 2)])
    moved = redrive(place)
    assert moved.moved == 1
    assert moved.stopped is not None
    assert "does not have 'dead' as its dead_letter" in moved.stopped.message
    with pytest.raises(TopicExistsIncompatible):
        redrive(place)
    assert jobs(place, "theirs") == []
    assert redrive(place, to="mine").moved == 1


def test_the_copy_of_a_letter_that_a_router_made_goes_nowhere_by_itself(place: Place) -> None:
    place.log.put_router("copies", source="dead", dest="more")
    die(place, 1)
    engine = place.log.engine
    assert place.log.diff("more").count == 1
    with pytest.raises(TopicExistsIncompatible, match="have 'more' as its dead_letter"):
        engine.redrive(engine.topic("more"), to=None, wanted=1, check_name=anything)
    assert jobs(place) == []


def test_a_client_writes_no_letter_of_its_own_whatever_way_it_takes(place: Place) -> None:
    planted = letter("jobs", 1)
    with pytest.raises(RequestError, match=r"record 0: 'meta' .* \$dead_letter_"):
        place.log.append("dead", [planted])
    upload = place.log.engine.begin_upload("dead", {})
    segment = build_segment(
        [planted], topic_id=upload.topic_id, first_seq=1, ts=1, dead_letters=True
    )
    segments = stage(place.disk, upload.upload, [segment])
    with pytest.raises(RequestError, match=r"record 0: 'meta' .* \$dead_letter_"):
        place.log.engine.attach(upload.upload, segments)
    assert place.log.engine.find_topic("dead") is None


def test_a_letter_that_a_client_once_planted_is_still_read(place: Place) -> None:
    deliver(place, [letter("jobs", 1)])
    place.log.create("jobs", type="queue")
    place.kill()
    assert [meta for _, meta in dead(place)] == [{"$dead_letter_from": "jobs"}]
    with pytest.raises(TopicExistsIncompatible):
        redrive(place)


def test_letters_of_partitions_go_back_partition_by_partition(place: Place) -> None:
    place.log.create("dead", partitions=2)
    queue(place, 0, max_deliveries=1, dead_letter="dead")
    place.log.append("jobs", [{"data": n, "tag": tag} for n, tag in enumerate("abab")])
    claim(place, "w1", 4)
    place.log.nack("jobs", [1, 2, 3, 4], node="w1")
    assert claim(place, "w1", 4) == []
    moved = place.log.redrive("dead", max=3)
    assert (moved.topic, moved.moved, moved.queues, moved.left) == ("dead", 3, {"jobs": 3}, 1)
    assert place.log.redrive("dead-0").moved + place.log.redrive("dead-1").moved == 1
    assert jobs(place) in ([0, 2, 1, 3], [1, 3, 0, 2])
    assert place.log.state("dead").count == 0


def test_a_letter_in_a_partition_goes_to_no_queue_that_does_not_name_its_topic(
    place: Place,
) -> None:
    place.log.create("dead", partitions=2)
    die_partitioned(place)
    place.log.create("jobs", dead_letter="other")
    for name in ("dead", "dead-0"):
        with pytest.raises(TopicExistsIncompatible, match="does not have 'dead' as its"):
            place.log.redrive(name)
    place.log.create("jobs", dead_letter="dead-0")
    assert place.log.redrive("dead-0").moved == 1


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
