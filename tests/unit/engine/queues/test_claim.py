"""Claiming: who gets what, in which order, and what is refused."""

import re
import threading

import pytest
from tests.unit.engine.place import Place

from topics.engine.queues import claim as claim_module
from topics.engine.queues.read import stored_bytes
from topics.engine.topics.topic import Topic
from topics.errors import Closed, CorruptData, DiskFailed, NotAQueue, RequestError, TopicNotFound
from topics.model.queues import ClaimRequest, Lease, QueueState
from topics.testing.manual_clock import ManualClock

DEADLINE_S = 10.0


def queue(place: Place, count: int = 3, **config: object) -> None:
    place.log.create("jobs", type="queue", lease_ms=1_000, **config)
    if count:
        place.log.append("jobs", [{"data": i} for i in range(1, count + 1)])


def claim(place: Place, node: str = "w1", count: int = 1, **options: int) -> list[int]:
    return [lease.seq for lease in place.log.claim("jobs", node=node, max=count, **options).leases]


def state(place: Place) -> QueueState:
    found = place.log.state("jobs").queue
    assert found is not None
    return found


def test_a_job_carries_its_record_byte_for_byte(place: Place) -> None:
    queue(place, 0)
    body = b'{"records":[{"data":{"b": 1.50,"a":[ ]},"meta":{"k" : 1e3},"tag":"t\\"1","node":"p"}]}'
    place.log.append_json("jobs", body)
    claimed = place.log.claim("jobs", node="w1")
    (lease,) = claimed.leases
    assert claimed.claimed_json == (
        b'{"lease_id":"%b","deadline":1700000001000,"deliveries":1,"$seq":1,"$ts":1700000000000,'
        b'"$node":"p","$tag":"t\\"1","meta":{"k" : 1e3},"data":{"b": 1.50,"a":[ ]}}'
        % lease.lease_id.encode()
    )
    (job,) = claimed.jobs
    assert (job.seq, job.tag, job.data, job.meta) == (1, 't"1', {"b": 1.5, "a": []}, {"k": 1000.0})
    assert lease == Lease(seq=1, lease_id=job.lease_id, deadline=job.deadline, deliveries=1)


def test_a_lease_id_is_128_random_bits(place: Place) -> None:
    queue(place, 2)
    ids = {lease.lease_id for lease in place.log.claim("jobs", node="w1", max=2).leases}
    assert len(ids) == 2
    assert all(re.fullmatch(r"lease_[0-9a-f]{32}", found) for found in ids)


def test_jobs_are_claimed_in_order_and_by_one_worker_only(place: Place) -> None:
    queue(place, 3)
    assert claim(place, "w1", 2) == [1, 2]
    assert claim(place, "w2", 2) == [3]
    assert claim(place, "w3", 2) == []
    assert state(place) == QueueState(ready=0, in_flight=3, dead_lettered=0)


def test_what_came_back_is_claimed_before_what_is_fresh(place: Place) -> None:
    queue(place, 5)
    claim(place, "w1", 3)
    place.log.nack("jobs", [3, 1], node="w1")
    assert claim(place, "w2", 1) == [1]
    assert claim(place, "w2", 2) == [3, 4]


def test_an_answer_ascends_although_returned_jobs_come_first(place: Place) -> None:
    queue(place, 0)
    place.log.append("jobs", [{"data": i} for i in range(4)])
    claim(place, "w1", 4)
    place.log.nack("jobs", [4], node="w1")
    place.log.nack("jobs", [2], node="w1", delay_ms=1)
    place.clock.advance_ms(1)
    assert claim(place, "w2", 4) == [2, 4]


def test_an_expired_lease_is_found_by_the_next_claim(place: Place) -> None:
    queue(place, 1)
    assert claim(place, "w1", lease_ms=500) == [1]
    place.clock.advance_ms(499)
    assert claim(place, "w2") == []
    place.clock.advance_ms(1)
    claimed = place.log.claim("jobs", node="w2")
    assert [(lease.seq, lease.deliveries) for lease in claimed.leases] == [(1, 2)]


def test_a_lease_time_is_clamped(place: Place) -> None:
    queue(place, 2)
    now_ms = place.clock.now_ms()
    assert place.log.claim("jobs", node="w1", lease_ms=1).leases[0].deadline == now_ms + 100
    longest = place.log.claim("jobs", node="w1", lease_ms=10**12).leases[0]
    assert longest.deadline == now_ms + 86_400_000


def test_a_claim_gets_no_more_than_the_limit(place: Place) -> None:
    queue(place, 5)
    place.stop(max_claim=2)
    assert claim(place, "w1", 1_000) == [1, 2]


def test_a_claim_stops_before_its_answer_is_huge_but_gets_one_job(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_module, "MAX_BATCH_BYTES", 200)
    queue(place, 0)
    place.log.append("jobs", [{"data": "x" * 90} for _ in range(3)])
    place.log.append("jobs", [{"data": "y" * 900}])
    assert claim(place, "w1", 4) == [1]
    place.log.ack("jobs", [1], node="w1")
    assert claim(place, "w1", 4) == [2]
    assert claim(place, "w1", 4) == [3]
    assert claim(place, "w1", 4) == [4]


@pytest.mark.parametrize("step", ["checkpoint", "snapshot", "relocate"])
def test_jobs_are_read_from_wherever_they_are(place: Place, step: str) -> None:
    queue(place, 6)
    place.log.engine.checkpoint()
    getattr(place.log.engine, step)()
    place.log.append("jobs", [{"data": 7}])
    claimed = place.log.claim("jobs", node="w1", max=9)
    assert [job.data for job in claimed.jobs] == [1, 2, 3, 4, 5, 6, 7]


def test_a_changed_config_counts_for_later_claims(place: Place) -> None:
    queue(place, 2)
    now_ms = place.clock.now_ms()
    place.log.create("jobs", lease_ms=9_000)
    assert place.log.claim("jobs", node="w1").leases[0].deadline == now_ms + 9_000


def test_what_was_evicted_expired_or_deleted_is_no_job_any_more(place: Place) -> None:
    queue(place, 6, cap_records=6)
    claim(place, "w1", 4)
    place.log.append("jobs", [{"data": 7, "tag": "x"}])  # evicts 1
    assert state(place) == QueueState(ready=3, in_flight=3, dead_lettered=0)
    place.log.delete("jobs", before_seq=3)
    assert state(place) == QueueState(ready=3, in_flight=2, dead_lettered=0)
    place.log.delete("jobs", match="x")
    assert state(place) == QueueState(ready=2, in_flight=2, dead_lettered=0)
    place.log.create("jobs", ttl_ms=10)
    place.clock.advance_ms(11)
    assert claim(place, "w2", 9) == []
    assert state(place) == QueueState(ready=0, in_flight=0, dead_lettered=0)


def test_only_a_queue_has_jobs(place: Place) -> None:
    place.log.create("log")
    with pytest.raises(NotAQueue) as refused:
        place.log.claim("log", node="w1")
    assert refused.value.code == "not_a_queue"
    with pytest.raises(TopicNotFound):
        place.log.claim("absent", node="w1")
    assert place.log.state("log").queue is None


def test_a_claim_without_a_worker_or_a_number_is_refused(place: Place) -> None:
    queue(place)
    with pytest.raises(RequestError, match="node"):
        place.log.claim("jobs", node="")
    with pytest.raises(RequestError, match="max"):
        place.log.claim("jobs", node="w1", max=0)
    assert state(place).in_flight == 0


def test_a_queue_made_anew_knows_nothing_of_the_old_one(place: Place) -> None:
    queue(place, 3)
    claim(place, "w1", 2)
    old = place.log.engine.topic("jobs")
    place.log.drop("jobs")
    with pytest.raises(TopicNotFound):
        place.log.engine.claim(old, ClaimRequest(node="w1"))
    queue(place, 2)
    assert claim(place, "w2", 5) == [1, 2]


def test_a_damaged_job_is_an_error_and_stays_in_the_queue(place: Place) -> None:
    queue(place, 5)
    place.log.engine.checkpoint()
    segment = place.log.engine.topic("jobs").segments()[0]
    file = place.disk.open(segment.data_path)
    file.write_at(segment.data_bytes - 12, [b"\xff"])
    segment.release()
    with pytest.raises(CorruptData):
        place.log.claim("jobs", node="w1", max=9)
    assert state(place) == QueueState(ready=5, in_flight=0, dead_lettered=0)


def test_a_closed_log_has_no_jobs(place: Place) -> None:
    queue(place)
    place.log.close()
    with pytest.raises(Closed):
        place.log.claim("jobs", node="w1")
    place.open()


def test_several_claims_are_dealt_from_one_pass(place: Place) -> None:
    queue(place, 6)
    engine = place.log.engine
    requests = [ClaimRequest(node="w1", max=6), ClaimRequest(node="w2", max=3)]
    shard, claims = engine.submit_claims(engine.topic("jobs"), requests)
    for ticket in claims:
        shard.commit.commit(ticket)
    seqs = [[lease.seq for lease in ticket.claimed.leases] for ticket in claims]
    assert seqs == [[1, 2, 3, 4], [5, 6]]


class GatheringClock(ManualClock):
    """A clock on which a window lasts until all claimers have come."""

    def __init__(self) -> None:
        super().__init__()
        self.all_here = threading.Event()

    def sleep(self, seconds: float) -> None:
        assert seconds == 0.05
        assert self.all_here.wait(DEADLINE_S)


def test_threads_in_one_window_share_the_jobs_evenly() -> None:
    place = Place()
    clock = GatheringClock()
    place.log.close()
    place.clock = clock
    place.open()
    queue(place, 6, claim_jitter_ms=50)
    got: dict[str, int] = {}

    def work(node: str) -> None:
        got[node] = place.log.claim("jobs", node=node, max=10).count

    threads = [threading.Thread(target=work, args=(f"w{i}",)) for i in range(3)]
    for thread in threads:
        thread.start()
    windows = place.log.engine.queues._windows
    topic = place.log.engine.topic("jobs")
    while len(windows._open.get(topic.id, ())) < 3:
        assert any(thread.is_alive() for thread in threads)
    clock.all_here.set()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert got == {"w0": 2, "w1": 2, "w2": 2}


def test_a_window_of_one_gets_what_it_wants_and_its_errors(place: Place) -> None:
    queue(place, 3, claim_jitter_ms=50)
    assert claim(place, "w1", 2) == [1, 2]
    place.log.drop("jobs", if_empty=False)
    queue(place, 1, claim_jitter_ms=50)
    with pytest.raises(RequestError):
        place.log.claim("jobs", node="")
    assert claim(place, "w1", 2) == [1]


def test_a_claim_that_fails_while_it_picks_gives_back_what_it_took(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(place, 3)

    def fail_at_the_second(topic: Topic, seq: int) -> int:
        if seq == 2:
            raise DiskFailed("no map")
        return stored_bytes(topic, seq)

    monkeypatch.setattr("topics.engine.queues.claim.stored_bytes", fail_at_the_second)
    with pytest.raises(DiskFailed):
        claim(place, "w1", 3)
    monkeypatch.undo()
    leases = place.log.claim("jobs", node="w1", max=9).leases
    assert [(lease.seq, lease.deliveries) for lease in leases] == [(1, 1), (2, 1), (3, 1)]
