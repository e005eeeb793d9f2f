"""What holds for the embedded log holds for both clients: values, errors, handles."""

import dataclasses

import msgspec
import pydantic
import pytest
from tests.client.faces import AnyLog, AnyValue, fresh

from topics import errors
from topics.model.diff import Record, Tombstone
from topics.model.stream import CaughtUp, TypedRecord


class Order(msgspec.Struct):
    """A payload as msgspec has it."""

    id: int


@dataclasses.dataclass
class Point:
    """A payload of the standard library."""

    x: int
    y: int = 0


class Person(pydantic.BaseModel):
    """A payload as pydantic has it."""

    name: str


def test_a_topic_is_created_changed_looked_at_and_dropped(log: AnyLog) -> None:
    name = fresh()
    assert log.create(name, cap_records=5).config.cap_records == 5
    assert log.create(name, durability="fsync").config.durable
    state = log.state(name)
    assert (state.topic, state.head_seq, state.next_seq, state.queue) == (name, 0, 1, None)
    assert log.topics(name) == [name]
    assert log.drop(name)
    assert not log.drop(name)
    assert log.topics(name) == []


def test_records_come_back_as_they_were_written(log: AnyLog) -> None:
    name = fresh()
    written = log.append(name, [{"data": {"a": 1.50}, "tag": "x", "meta": {"m": 2}}], node="n")
    assert (written.first_seq, written.last_seq, written.count) == (1, 1, 1)
    assert written.created
    assert written.seqs == [1]
    log.append_json(name, b'{"records":[{"data":1.50}]}')
    page = log.diff(name)
    first, second = page.records
    assert (first.data, first.tag, first.node, first.meta) == ({"a": 1.5}, "x", "n", {"m": 2})
    assert bytes(second.data_json) == b"1.50"
    assert (page.count, page.next_from_seq, page.caught_up, page.lag) == (2, 2, True, 0)
    assert [r.seq for r in log.diff(name, node="n").records] == [2]
    assert [r.seq for r in log.diff(name, match="x").records] == [1]
    assert [r.tag for r in log.diff(name, include_tags=False, limit=1).records] == [None]


def test_a_record_that_is_printed_shows_its_data(log: AnyLog) -> None:
    name, queue = fresh(), fresh("q")
    log.create(queue, type="queue")
    for topic in (name, queue):
        log.append(topic, [{"data": {"id": 7}, "tag": "x", "meta": {"m": 2}}])
    (record,) = log.diff(name).records
    told = f"seq=1, ts={record.ts}, tag='x'"
    assert str(record) == f"Record({told}, meta={{'m': 2}}, data={{'id': 7}})"
    typed, _ = log.topic(name, Order).read()
    assert str(typed) == f"TypedRecord({told}, meta={{'m': 2}}, data=Order(id=7))"
    (job,) = log.claim(queue, node="w").jobs
    assert str(job).startswith(f"Job(seq=1, ts={job.ts}, tag='x', lease_id='{job.lease_id}'")
    assert str(job).endswith("deliveries=1, meta={'m': 2}, data={'id': 7})")
    log.append(name, [{"data": None}])
    assert str(log.diff(name, from_seq=1).records[0]).endswith("data=None)")


def test_a_list_shows_class_and_type(log: AnyLog) -> None:
    word = fresh()
    log.create(f"{word}.a", durability="ephemeral")
    log.create(f"{word}.b", type="queue", durability="fsync")
    log.create(f"{word}.c", partitions=1)
    listed = [(t.topic[-1], t.type, t.durability, t.durable) for t in log.listed(f"{word}.")]
    assert listed == [
        ("a", "log", "ephemeral", False),
        ("b", "queue", "fsync", True),
        ("c", "log", "disk", False),
        ("0", "log", "disk", False),
    ]


def test_a_repeat_of_a_write_is_known(log: AnyLog) -> None:
    name = fresh()
    first = log.append(name, [{"data": 1}], idempotency_key="k")
    again = log.append(name, [{"data": 1}], idempotency_key="k")
    assert (again.first_seq, again.deduped) == (first.first_seq, True)
    log.append(name, [{"data": 2}], producer_id="p", producer_seq=1)
    assert log.append(name, [{"data": 2}], producer_id="p", producer_seq=1).deduped
    assert log.state(name).count == 2


def test_partitions_are_written_and_shown_alike(log: AnyLog) -> None:
    name = fresh()
    assert len(log.create(name, partitions=3).partitions) == 3
    records = [{"data": n, "key": key} for n, key in enumerate(("user1", "user7", "user1"))]
    written = log.append(name, records, idempotency_key="k")
    assert written.placed == [(2, 1), (0, 1), (2, 2)]
    assert [(p.topic, p.count) for p in written.placements] == [(f"{name}-0", 1), (f"{name}-2", 2)]
    assert (written.seqs, written.count, written.first_seq) == ([], 3, 0)
    assert log.append(name, records, idempotency_key="k").deduped
    assert log.topics(name) == [name, *(f"{name}-{n}" for n in range(3))]
    with pytest.raises(errors.TopicPartitioned) as caught:
        log.diff(name)
    assert (caught.value.topic, caught.value.partitions) == (
        name,
        [f"{name}-{n}" for n in range(3)],
    )
    log.topic(name).append("x", key="user1")
    assert log.state(f"{name}-2").count == 3


def test_deletes_answer_what_is_left(log: AnyLog) -> None:
    name = fresh()
    log.append(name, [{"data": n, "tag": f"t:{n % 2}"} for n in range(10)])
    assert log.delete(name, match="t:0").deleted == 5
    assert log.delete(name, before_seq=5).count == 3
    assert log.state(name).earliest_seq == 6


def test_a_delete_tells_a_given_0_from_none(log: AnyLog) -> None:
    name = fresh()
    log.append(name, [{"data": n, "tag": f"t:{n % 2}"} for n in range(10)])
    assert log.delete(name, before_seq=0).deleted == 0
    assert log.delete(name, before_seq=0, match="t:0").deleted == 0
    for bad in ({}, {"before_seq": -1}, {"before_seq": -1, "match": "t:0"}):
        with pytest.raises(errors.RequestError):
            log.delete(name, **bad)
    assert log.state(name).count == 10
    assert log.delete(name, match="t:0").deleted == 5


def test_jobs_go_through_the_hands_of_workers(log: AnyLog) -> None:
    name = fresh("q")
    log.create(name, type="queue", lease_ms=60_000)
    log.append(name, [{"data": n} for n in range(3)])
    claimed = log.claim(name, node="w", max=2)
    assert [job.data for job in claimed.jobs] == [0, 1]
    assert (claimed.count, claimed.ready) == (2, 1)
    one, two = claimed.jobs
    assert [lease.lease_id for lease in claimed.leases] == [one.lease_id, two.lease_id]
    extended = log.extend(name, [1], node="w", lease_ms=90_000, lease_ids=[one.lease_id])
    assert extended.deadlines[1] > one.deadline
    assert log.ack(name, [1], node="w", lease_ids=[one.lease_id]).acked_seqs == [1]
    assert log.nack(name, [2], node="w", lease_ids=[two.lease_id]).nacked == 1
    assert log.ack(name, [2], node="w").skipped == [2]
    assert log.state(name).queue.ready == 2


def test_routers_are_made_looked_at_and_removed(log: AnyLog) -> None:
    source, dest = fresh("src"), fresh("dst")
    router = f"{source}->{dest}"
    made = log.put_router(router, source=source, dest=dest, filter="x")
    assert (made.router, made.definition.dest, made.definition.filter) == (router, dest, "x")
    log.append(source, [{"data": 1, "tag": "x"}, {"data": 2}])
    assert [r.data for r in log.diff(dest).records] == [1]
    assert log.router_state(router).forwarded_total == 1
    assert router in [state.router for state in log.routers()]
    assert log.delete_router(router)
    assert not log.delete_router(router)


@pytest.mark.parametrize(
    ("kind", "ask"),
    [
        (errors.TopicNotFound, lambda log: log.state("nobody")),
        (errors.TopicNotFound, lambda log: log.append("nobody", [{"data": 1}], create=False)),
        (errors.RequestError, lambda log: log.append("no/name", [{"data": 1}])),
        (errors.RequestError, lambda log: log.append(fresh(), [{"data": object()}])),
        (errors.RequestError, lambda log: log.append(fresh(), [{"data": {"x": float("nan")}}])),
        (errors.RequestError, lambda log: log.append(fresh(), {"data": 1})),
        (errors.UnknownField, lambda log: log.create(fresh(), cap_record=1)),
        (errors.UnknownField, lambda log: log.append(fresh(), [{"data": 1, "tags": "x"}])),
        (errors.RecordTooLarge, lambda log: log.append(fresh(), [{"data": "x" * 2**20}])),
        (errors.BatchTooLarge, lambda log: log.append(fresh(), [{"data": 1}] * 10_001)),
        (errors.RouterNotFound, lambda log: log.router_state("nobody")),
    ],
)
def test_an_error_is_of_the_same_class_everywhere(
    log: AnyLog, kind: AnyValue, ask: AnyValue
) -> None:
    with pytest.raises(kind) as caught:
        ask(log)
    assert type(caught.value) is kind
    if kind is errors.TopicNotFound:
        assert caught.value.topic == "nobody"


def test_jobs_are_put_into_a_queue_and_nowhere_else(log: AnyLog) -> None:
    name, plain = fresh(), fresh()
    assert log.append(name, [{"data": 1}], queue=True).created
    assert log.append(name, [{"data": 2}], queue=True).last_seq == 2
    assert log.state(name).config.type == "queue"
    assert log.state(name).queue.ready == 2
    log.append(plain, [{"data": 1}])
    with pytest.raises(errors.NotAQueue, match=plain):
        log.append(plain, [{"data": 2}], queue=True)
    assert log.state(plain).head_seq == 1
    with pytest.raises(errors.NotAQueue, match=plain):
        log.append_json(plain, b'{"records":[{"data":2}],"queue":true}')
    body = b'{"records":[{"data":2}],"queue":true,"config":{"type":"log"}}'
    with pytest.raises(errors.RequestError, match="of another type"):
        log.append_json(fresh(), body)


def test_jobs_are_put_into_a_partitioned_topic_only_if_it_is_a_queue(log: AnyLog) -> None:
    queue, plain = fresh(), fresh()
    log.create(queue, partitions=2, type="queue")
    log.create(plain, partitions=2)
    assert log.append(queue, [{"data": 1, "key": "a"}], queue=True).count == 1
    with pytest.raises(errors.NotAQueue, match=plain):
        log.append(plain, [{"data": 1, "key": "a"}], queue=True)


def test_errors_keep_what_they_know(log: AnyLog) -> None:
    name = fresh()
    log.create(name, cap_records=1, discard="reject")
    log.append(name, [{"data": 1}])
    with pytest.raises(errors.TopicFull, match=name):
        log.append(name, [{"data": 2}])
    with pytest.raises(errors.TopicNotEmpty):
        log.drop(name, if_empty=True)
    with pytest.raises(errors.NotAQueue):
        log.claim(name, node="w")
    with pytest.raises(errors.TopicExistsIncompatible):
        log.create(name, type="queue")
    log.put_router(f"{name}-1", source=name, dest=f"{name}-x")
    with pytest.raises(errors.RouterCycle) as caught:
        log.put_router(f"{name}-2", source=f"{name}-x", dest=name)
    assert caught.value.cycle[0] == caught.value.cycle[-1]
    log.put_router(f"{name}-3", source=f"{name}-y", dest=f"{name}-z")
    with pytest.raises(errors.TopicExistsIncompatible) as fan_in:
        log.put_router(f"{name}-4", source=f"{name}-w", dest=f"{name}-z")
    assert fan_in.value.reason == "router_dest_fan_in"


@pytest.mark.parametrize(
    ("model", "value"),
    [(Order, Order(id=7)), (Point, Point(x=1)), (Person, Person(name="Ada")), (list[int], [1])],
)
def test_a_handle_gives_back_what_it_was_given(
    log: AnyLog, model: AnyValue, value: AnyValue
) -> None:
    handle = log.topic(fresh(), model)
    handle.append(value, value, tag="t", meta={"k": 1})
    first, second, end = handle.read()
    assert isinstance(first, TypedRecord)
    assert (first.data, first.seq, first.tag, first.meta) == (value, 1, "t", {"k": 1})
    assert isinstance(second, Record)
    assert second.data == value
    assert isinstance(end, CaughtUp)
    assert (end.from_seq, end.head_seq) == (2, 2)


def test_a_record_of_another_type_is_an_error_that_says_where(log: AnyLog) -> None:
    name = fresh()
    log.append(name, [{"data": {"id": 1}}, {"data": {"id": "two"}}])
    items = log.topic(name, Order).read()
    assert next(items).data == Order(id=1)
    with pytest.raises(errors.PayloadMismatch) as caught:
        next(items)
    assert (caught.value.topic, caught.value.seq) == (name, 2)


def test_loss_is_announced_where_it_was(log: AnyLog) -> None:
    name = fresh()
    log.create(name, cap_records=2)
    log.append(name, [{"data": n} for n in range(5)])
    lost, *records, end = log.topic(name).read()
    assert isinstance(lost, Tombstone)
    assert (lost.gap_from, lost.gap_to) == (1, 3)
    assert [record.data for record in records] == [3, 4]
    assert isinstance(end, CaughtUp)


def test_a_read_turns_pages_until_it_has_caught_up(log: AnyLog) -> None:
    name = fresh()
    log.append(name, [{"data": n} for n in range(25)])
    items = list(log.topic(name).read(from_seq=3, limit=4))
    assert [item.seq for item in items[:-1]] == list(range(4, 26))
    assert isinstance(items[-1], CaughtUp)


def test_a_tail_begins_now_and_waits_for_what_comes(log: AnyLog) -> None:
    name = fresh()
    log.append(name, [{"data": "old"}])
    items = log.topic(name).tail(limit=2)
    assert next(items) == CaughtUp(topic=name, from_seq=1, head_seq=1)
    log.append(name, [{"data": n} for n in range(3)])
    assert [next(items).data for _ in range(3)] == [0, 1, 2]


def test_a_read_that_waits_comes_back_empty_after_its_time(log: AnyLog) -> None:
    name = fresh()
    log.create(name)
    page = log.diff(name, wait_ms=30)
    assert (page.count, page.caught_up) == (0, True)


def test_a_read_between_two_times_ends_with_its_window(log: AnyLog) -> None:
    name = fresh()
    log.append(name, [{"data": n} for n in range(3)])
    ts = log.diff(name).records[0].ts
    handle = log.topic(name)
    end = max(record.ts for record in log.diff(name).records) + 1
    items = list(handle.read(from_ts=ts, until_ts=end, until_caught_up=False))
    assert [item.data for item in items if isinstance(item, Record)] == [0, 1, 2]
    assert log.diff(name, from_ts=end).count == 0
    assert log.diff(name, until_ts=ts).until_reached


def test_nobody_writes_a_dead_letter_but_the_log_itself(log: AnyLog) -> None:
    for meta in ({"$dead_letter_from": "jobs"}, {"a": 1, "$dead_letter_meta": {}}):
        with pytest.raises(errors.RequestError, match="only the server writes those"):
            log.append(fresh(), [{"data": 1, "meta": meta}])


def test_dead_letters_go_back_to_their_queue_oldest_first(log: AnyLog) -> None:
    queue, dead = fresh("q"), fresh("dead")
    log.create(dead)
    log.create(queue, type="queue", max_deliveries=1, dead_letter=dead)
    log.append(queue, [{"data": n} for n in range(3)])
    log.nack(queue, [job.seq for job in log.claim(queue, node="w", max=3).jobs], node="w")
    assert log.claim(queue, node="w").jobs == []  # none may be delivered again
    seen = 0
    while seen < 3:
        page = log.diff(dead, from_seq=seen, wait_ms=10_000)
        assert page.count
        seen = page.next_from_seq
    one = log.redrive(dead, max=1)
    assert (one.moved, one.queues, one.left, one.stopped) == (1, {queue: 1}, 2, None)
    assert log.redrive(dead, to=queue).moved == 2
    assert [job.data for job in log.claim(queue, node="w", max=5).jobs] == [0, 1, 2]
    with pytest.raises(errors.RequestError):
        log.redrive(dead, max=0)
    with pytest.raises(errors.TopicNotFound):
        log.redrive(fresh("nobody"))
