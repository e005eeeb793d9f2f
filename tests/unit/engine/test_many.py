"""Many topics and many leases: what is not due costs no lock, what is due comes in parts."""

from types import TracebackType

import pytest
from tests.unit.engine.place import Place

from topics.engine.queues.table import SETTLED_MAX, LeaseTable
from topics.engine.topics import registry
from topics.engine.topics.budget import REST, Budget
from topics.engine.topics.names import Names
from topics.errors import LimitReached
from topics.testing.manual_clock import ManualClock

SECOND_MS = 1_000
HOUR_MS = 3_600_000


class CountingLock:
    """A lock that counts how often it was taken."""

    def __init__(self) -> None:
        self.taken = 0

    def __enter__(self) -> bool:
        self.taken += 1
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


@pytest.fixture
def place() -> Place:
    return Place()


def locks_of_sweep(place: Place, monkeypatch: pytest.MonkeyPatch) -> int:
    shard = place.log.engine.shards[0]
    with monkeypatch.context() as patched:
        lock = CountingLock()
        patched.setattr(shard, "lock", lock)
        place.log.engine.sweep()
    return lock.taken


def test_a_sweep_over_topics_with_nothing_due_takes_no_lock(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        place.log.create(f"t{number}", ttl_ms=HOUR_MS, cap_records=10)
        place.fill(f"t{number}", 3)
    place.log.create("jobs", type="queue")
    place.log.append("jobs", [{"data": 1}])
    place.clock.advance_ms(2 * SECOND_MS)
    assert locks_of_sweep(place, monkeypatch) > 0  # each gives the seqs back it had reserved
    assert locks_of_sweep(place, monkeypatch) == 0


@pytest.mark.parametrize("due", ["ttl", "cap", "key", "age", "lease"])
def test_a_sweep_finds_what_is_due(place: Place, monkeypatch: pytest.MonkeyPatch, due: str) -> None:
    place.log.create("jobs", type="queue", durability="fsync", lease_ms=SECOND_MS)
    place.log.append("jobs", [{"data": 1}], idempotency_key="k" if due == "key" else None)
    if due == "ttl":
        place.log.create("jobs", ttl_ms=SECOND_MS)
    elif due == "lease":
        place.log.claim("jobs", node="w")
    elif due == "age":
        place.log.engine.checkpoint()
    elif due == "cap":
        place.log.append("jobs", [{"data": 2}])
        monkeypatch.setattr(
            place.log.engine.topic("jobs"), "config",
            place.log.engine.topic("jobs").config.merged({"cap_records": 1}),
        )  # fmt: skip
    place.clock.advance_ms(2 * HOUR_MS)
    assert locks_of_sweep(place, monkeypatch) > 0
    assert locks_of_sweep(place, monkeypatch) == 0


def test_leases_that_end_all_at_once_come_back_in_parts() -> None:
    table = LeaseTable()
    jobs = 2 * SETTLED_MAX + 1
    for seq in range(1, jobs + 1):
        job = table.take_fresh(seq)
        table.lease(job, node="w", lease_id=str(seq), deadline=10, deliveries=1)
    ready = []
    while table.is_due(now_ms=10, earliest_seq=1):
        table.settle(now_ms=10, earliest_seq=1)
        ready.append(table.ready(jobs))
    assert ready == [SETTLED_MAX, 2 * SETTLED_MAX, jobs]
    assert table.in_flight == 0


def test_names_come_a_page_at_a_time_in_order() -> None:
    names = Names(["b", "ab", "a", "c"])
    names.add("aa")
    names.remove("b")
    assert names.all() == ["a", "aa", "ab", "c"]
    assert names.starting("", 2) == ["a", "aa"]
    assert names.starting("", 2, after="aa") == ["ab", "c"]
    assert names.starting("a", 9, after="a") == ["aa", "ab"]
    assert names.starting("b", 9) == []
    assert names.starting("", 9, after="c") == []


def test_topics_and_those_with_partitions_come_in_one_row(place: Place) -> None:
    place.log.create("b", partitions=2)
    for name in ("a", "b-x", "c", "d"):
        place.log.create(name)
    whole = ["a", "b", "b-0", "b-1", "b-x", "c", "d"]
    engine = place.log.engine
    assert engine.names(limit=9) == whole
    assert engine.names(["b", "d"], limit=3, after="b") == ["b-0", "b-1", "b-x"]
    assert engine.names(["b", "d"], limit=9, after="b-0") == ["b-1", "b-x", "d"]
    place.log.drop("b")
    assert engine.names(limit=9) == ["a", "b-x", "c", "d"]
    place.kill()
    assert place.log.engine.names(limit=9) == ["a", "b-x", "c", "d"]
    assert [topic.name for topic in place.log.engine.topics()] == ["a", "b-x", "c", "d"]


def test_writes_are_counted_and_topics_added_up_only_where_they_would_not_fit() -> None:
    clock = ManualClock()
    held, looks = 0, 0

    def add_up() -> int:
        nonlocal looks
        looks += 1
        return held

    budget = Budget(add_up, 100, clock)
    for _ in range(10):
        budget.take(10)
    assert looks == 1
    held = 95
    with pytest.raises(LimitReached, match="max_total_bytes"):
        budget.take(10)
    assert looks == 2
    held = 20  # something was removed
    budget.take(80)
    assert looks == 3
    held = 100  # a router has copied
    clock.advance_ms(2 * SECOND_MS)
    with pytest.raises(LimitReached, match="max_total_bytes"):
        budget.take(1)
    assert looks == 4


def test_a_sum_that_takes_long_is_not_made_for_each_write_that_is_refused() -> None:
    clock = ManualClock()
    looks = 0

    def add_up() -> int:
        nonlocal looks
        looks += 1
        clock.advance_ms(10)
        return 100

    budget = Budget(add_up, 100, clock)
    for _ in range(100):
        with pytest.raises(LimitReached):
            budget.take(1)
    assert looks == 1
    clock.advance_ms(REST * 10)
    with pytest.raises(LimitReached):
        budget.take(1)
    assert looks == 2


def test_who_goes_through_very_many_topics_lets_others_have_their_turn(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        place.log.create(f"t{number}")
    rests: list[float] = []
    monkeypatch.setattr(place.clock, "sleep", rests.append)
    assert len(list(place.log.engine.each_topic())) == 6
    assert rests == []
    monkeypatch.setattr(registry, "TOPICS_A_BREATH", 2)
    assert len(list(place.log.engine.each_topic())) == 6
    assert len(rests) == 3
