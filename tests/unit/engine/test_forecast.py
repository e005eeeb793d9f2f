"""Removals that are queued behind writes on their way: what the caps took stays taken."""

from random import Random

import pytest
from tests.unit.engine.place import Place, seqs_of

from topics.engine.request import build_write
from topics.errors import DiskFull
from topics.model.queues import AckRequest
from topics.storage.wal.group_commit import Commitment


@pytest.fixture
def place() -> Place:
    return Place()


class Turn:
    """Requests that one sync makes done, as those of one moment under load are."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._engine = place.log.engine
        self._topic = self._engine.topic("q")
        self._shard = self._engine.shard_of(self._topic)
        self._tickets: list[Commitment] = []

    def append(self, *tags: str) -> None:
        write = build_write([{"data": tag, "tag": tag} for tag in tags], self._place.config)
        self._note(self._engine.submit_append(self._topic, write)[1])

    def ack(self, *seqs: int) -> None:
        request = AckRequest(node="w", seqs=list(seqs))
        self._note(self._engine.submit_ack(self._topic, request)[1])

    def delete(self, *, tag: str | None = None, before_seq: int | None = None) -> None:
        match = None if tag is None else ("Eq", tag)
        body = self._engine.bound_delete(self._topic, before_seq=before_seq, match=match)
        seqs = self._engine.collect_delete(self._topic, body)
        _, ticket = self._engine.submit_delete(self._topic, body, seqs)
        self._note(ticket)

    def end(self) -> None:
        self._shard.commit.sync_once()
        for ticket in self._tickets:
            ticket.result()
            assert ticket.done

    def _note(self, ticket: Commitment) -> None:
        self._tickets.append(ticket)
        with self._shard.lock:
            finished = self._shard.commit.flush()
        self._shard.commit.wake(finished)


def seen(place: Place) -> tuple[int, int, int, list[int]]:
    state = place.log.state("q")
    return state.evict_floor, state.earliest_seq, state.count, seqs_of(place.log.diff("q"))


def filled(place: Place, *, durability: str, count: int = 3, **config: int) -> Turn:
    place.log.create("q", type="queue", durability=durability, **config)
    for i in range(count):
        place.log.append("q", [{"data": str(i + 1), "tag": "ab"[i % 2]}])
    place.log.claim("q", node="w", max=count)
    place.log.sync()
    return Turn(place)


@pytest.mark.parametrize("end", ["kill", "cut"])
@pytest.mark.parametrize("durability", ["fsync", "disk"])
@pytest.mark.parametrize("how", ["ack", "delete"])
def test_what_a_write_on_its_way_evicts_stays_evicted(
    place: Place, how: str, durability: str, end: str
) -> None:
    turn = filled(place, durability=durability, cap_records=3)
    turn.append("c")
    if how == "ack":
        turn.ack(2)
    else:
        turn.delete(tag="b")
    turn.end()
    assert seen(place) == (2, 3, 2, [3, 4])
    place.log.sync()
    getattr(place, end)()
    assert seen(place) == (2, 3, 2, [3, 4])


def test_removals_on_their_way_are_not_evicted_again(place: Place) -> None:
    turn = filled(place, durability="fsync", cap_records=3)
    turn.append("c")
    turn.ack(2)
    turn.append("d")
    turn.ack(3)
    turn.end()
    assert seen(place) == (2, 4, 2, [4, 5])
    place.cut()
    assert seen(place) == (2, 4, 2, [4, 5])


def test_a_floor_that_was_told_holds_although_the_cap_was_raised_meanwhile(place: Place) -> None:
    turn = filled(place, durability="fsync", cap_records=3)
    turn.append("c")
    turn.ack(2)
    place.log.create("q", cap_records=9)
    turn.end()
    before = seen(place)
    place.kill()
    assert seen(place) == before == (2, 3, 2, [3, 4])


@pytest.mark.parametrize("seed", range(40))
def test_a_start_finds_what_any_turn_left(place: Place, seed: int) -> None:
    random = Random(seed)
    caps = {"cap_records": 6} if seed % 2 else {"cap_bytes": 24}
    turn = filled(place, durability=random.choice(["fsync", "disk"]), count=6, **caps)
    for _ in range(10):
        dice = random.random()
        if dice < 0.5:
            turn.append(*random.choices("abc", k=random.randint(1, 3)))
        elif dice < 0.8:
            turn.ack(*random.sample(range(1, 7), 2))
        elif dice < 0.9:
            turn.delete(tag=random.choice("ab"))
        else:
            turn.delete(before_seq=random.randint(1, 6))
    turn.end()
    before = seen(place)
    place.log.sync()
    if random.random() < 0.5:
        place.kill()
    else:
        place.cut()
    assert seen(place) == before


def test_floors_that_a_full_disk_refused_are_told_later(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(place, durability="fsync", count=4, cap_records=3)
    log = place.log.engine.shards[0].commit.log

    def no_room(size: int) -> None:
        raise DiskFull(f"no room for {size} bytes")

    monkeypatch.setattr(log, "_open_next_file", no_room)
    monkeypatch.setattr(log, "_capacity", 0)
    with pytest.raises(DiskFull):
        place.log.delete("q", match=["tag", "Eq", "b"])
    monkeypatch.undo()
    assert place.log.delete("q", match=["tag", "Eq", "b"]).deleted == 2
    before = seen(place)
    place.kill()
    assert seen(place) == before == (2, 3, 1, [3])
