"""What a copy is, when it comes, and what is told of those that cannot come."""

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.place import Place, gap_of, seqs_of

from topics.clock import Clock
from topics.config import ServerConfig
from topics.embedded import Log
from topics.engine import background
from topics.engine.background import Background
from topics.engine.diff import DiffRequest
from topics.engine.engine import Engine
from topics.engine.routers import copy, forwarder, gather
from topics.engine.routers.forward import submit_stretch
from topics.engine.routers.forwarder import Forwarder
from topics.engine.routers.gather import Stretch
from topics.engine.routers.link import Link
from topics.engine.shard import Shard
from topics.engine.topics.topic import Run, Topic
from topics.errors import CorruptData
from topics.kernel import count_live
from topics.model.diff import Page, Record
from topics.storage.wal.group_commit import Commitment

AB = {"source": "a", "dest": "b"}
DEADLINE_S = 10


@pytest.fixture
def place(place: Place) -> Place:
    place.log.create("a")
    place.log.create("b")
    return place


def route(place: Place, name: str = "r", **fields: Any) -> None:  # noqa: ANN401 - of a router
    place.log.engine.put_router(name, {**AB, **fields})


def read(place: Place, topic: str = "b") -> list[Record]:
    records: list[Record] = []
    cursor = 0
    while True:
        page = place.log.diff(topic, from_seq=cursor, include_tags=True, limit=1000)
        records += page.records
        cursor = page.next_from_seq
        if page.caught_up:
            return records


def data(place: Place, topic: str = "b") -> list[Any]:
    return [record.data for record in read(place, topic)]


def wal_bytes(place: Place) -> int:
    return sum(s.commit.log.counters.bytes_written for s in place.log.engine.shards)


def test_a_copy_has_a_new_seq_and_the_rest_of_its_source(place: Place) -> None:
    place.fill("b", 3)
    route(place)
    body = {"data": {"x": [1, 2.50]}, "tag": "t:1", "node": "n-1", "meta": {"k": "v"}}
    place.log.append("a", [body])
    [source] = read(place, "a")
    copy = read(place)[-1]
    assert copy.seq == 4
    assert (copy.ts, copy.node, copy.tag) == (source.ts, "n-1", "t:1")
    assert bytes(copy.data_json) == bytes(source.data_json)
    assert bytes(copy.meta_json) == bytes(source.meta_json)


def test_time_never_goes_back_in_a_destination(place: Place) -> None:
    route(place)
    place.fill("a", 1)
    place.clock.advance_ms(50)
    place.fill("b", 1)
    assert [r.ts for r in read(place)] == sorted(r.ts for r in read(place))


def test_only_what_comes_after_a_router_is_copied(place: Place) -> None:
    place.fill("a", 3)
    route(place)
    place.log.append("a", [{"data": "new"}])
    assert data(place) == ["new"]


def test_node_and_tag_are_left_out_where_they_are_not_wanted(place: Place) -> None:
    route(place, preserve_node=False, preserve_tag=False)
    place.log.append("a", [{"data": 1, "tag": "t", "node": "n", "meta": {"k": 1}}])
    [copy] = read(place)
    assert (copy.node, copy.tag, copy.meta, copy.data) == (None, None, {"k": 1}, 1)
    assert place.log.delete("b", match="t").deleted == 0


@pytest.mark.parametrize(
    ("wanted", "copied"), [("x:1", [0]), (["tag", "Eq", "y"], [2]), (["tag", "Glob", "x*"], [0, 1])]
)
def test_a_filter_lets_through_what_matches(place: Place, wanted: Any, copied: list[int]) -> None:  # noqa: ANN401 - as on the wire
    route(place, filter=wanted)
    tags = ["x:1", "x:2", "y", None]
    for i, tag in enumerate(tags):
        place.log.append("a", [{"data": i, "tag": tag} if tag else {"data": i}])
    place.log.engine.forward_once()
    assert data(place) == copied
    assert place.log.engine.router_state("r").forwarded_total == len(copied)
    assert place.log.engine.router_state("r").lag == 0


def test_several_routers_of_a_pair_copy_record_by_record(place: Place) -> None:
    route(place, "one")
    route(place, "two", filter="x", preserve_tag=False)
    place.log.append("a", [{"data": 1}, {"data": 2, "tag": "x"}, {"data": 3}])
    assert [(r.data, r.tag) for r in read(place)] == [(1, None), (2, "x"), (2, None), (3, None)]
    place.kill()
    assert [(r.data, r.tag) for r in read(place)] == [(1, None), (2, "x"), (2, None), (3, None)]
    totals = [state.forwarded_total for state in place.log.engine.routers()]
    assert totals == [3, 1]


def test_copies_cost_no_bytes_of_the_log(place: Place) -> None:
    route(place)
    place.log.append("a", [{"data": "x" * 100}])
    place.log.engine.forward_once()  # reserves seqs, once in a thousand
    before = wal_bytes(place)
    place.log.append("a", [{"data": "x" * 100}] * 5)
    written = wal_bytes(place) - before
    place.log.engine.forward_once()
    assert wal_bytes(place) - before == written
    assert len(data(place)) == 6


def test_a_read_right_after_a_write_shows_the_copy_along_a_chain(place: Place) -> None:
    route(place)
    place.log.create("c")
    place.log.engine.put_router("s", {"source": "b", "dest": "c"})
    place.fill("a", 2)
    assert place.log.state("c").head_seq == 2
    place.fill("a", 2)
    assert seqs_of(place.log.diff("c", from_seq=2)) == [3, 4]


def test_forwarding_tells_whether_anything_moved(place: Place) -> None:
    route(place)
    assert place.log.engine.forward_once() is False
    place.fill("a", 2)
    assert place.log.engine.router_state("r").lag == 2
    assert place.log.engine.forward_once() is True
    assert place.log.engine.forward_once() is False


def test_someone_is_told_when_there_is_something_to_forward(place: Place) -> None:
    asked: list[int] = []
    place.log.engine.on_routers_due = lambda: asked.append(1)
    place.fill("a", 1)
    assert asked == []
    route(place)
    assert asked == [1], "whoever forwards looks after it from now on"
    place.fill("a", 1)
    assert asked == [1, 1]


def test_a_thread_forwards_what_nobody_reads(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = place.log.engine
    forward, moved = engine.forward_once, threading.Event()

    def step() -> bool:
        if forward():
            moved.set()
        return True

    monkeypatch.setattr(engine, "forward_once", step)
    threads = Background(engine)
    try:
        route(place)
        place.fill("a", 1)
        assert moved.wait(DEADLINE_S)
        assert engine.topic("b").head_seq == 1
    finally:
        threads.stop()


def test_a_thread_goes_on_when_somebody_came_between(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = place.log.engine
    forward, begun, moved = engine.forward_once, threading.Event(), threading.Event()

    def step() -> bool:
        if not begun.is_set():
            begun.set()
            return engine._forwarder.forward_once(is_over=lambda: True)
        if forward():
            moved.set()
        return True

    monkeypatch.setattr(engine, "forward_once", step)
    monkeypatch.setattr(background, "ROUTER_STEP_MS", 60_000)
    monkeypatch.setattr(forwarder, "STEP_RECORDS", 1)
    route(place)
    place.fill("a", 2)
    threads = Background(engine)
    try:
        engine.on_routers_due()
        assert moved.wait(DEADLINE_S)
        assert engine.topic("b").head_seq == 2
    finally:
        threads.stop()


# How far a step and a turn go.


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Which destination got how many records, step by step."""
    seen: list[tuple[str, int]] = []

    def submit(shard: Shard, link: Link, stretch: Stretch, *, clock: Clock) -> Commitment | None:
        seen.append((link.dest.name, stretch.copies.count))
        return submit_stretch(shard, link, stretch, clock=clock)

    monkeypatch.setattr(forwarder, "submit_stretch", submit)
    return seen


def test_a_step_takes_many_runs_in_both_layouts(place: Place, steps: list[tuple[str, int]]) -> None:
    route(place)
    place.fill("a", 10, tag="t", node="n")
    place.log.engine.checkpoint()
    place.fill("a", 5)
    assert len(place.log.engine.topic("a").runs) > 3
    assert data(place) == [*range(10), *range(5)]
    assert steps == [("b", 15)]
    assert [(r.tag, r.node) for r in read(place)] == [("t", "n")] * 10 + [(None, None)] * 5


def test_a_step_takes_so_many_bytes_and_no_more(
    place: Place, steps: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    route(place)
    place.fill("a", 10, tag="t" * 100)
    place.log.engine.checkpoint()
    place.fill("a", 4, tag="t" * 100)
    (size,) = {len(chunk.frames) // chunk.count for chunk in place.log.engine.topic("a").chunks()}
    monkeypatch.setattr(gather, "STEP_BYTES", 4 * size)
    assert data(place) == [*range(10), *range(4)]
    assert steps == [("b", 4), ("b", 4), ("b", 4), ("b", 2)]


def test_records_that_are_not_safe_in_the_same_way_are_not_copied_together(
    place: Place, steps: list[tuple[str, int]]
) -> None:
    place.log.create("e", durability="ephemeral")
    place.log.create("d", durability="fsync")
    place.log.engine.put_router("r", {"source": "e", "dest": "d"})
    place.fill("e", 3)
    place.log.create("e", durability="disk")
    place.fill("e", 3)
    assert data(place, "d") == [0, 1, 2] * 2
    assert steps == [("d", 3), ("d", 3)]
    place.cut()
    assert data(place, "d") == [0, 1, 2] * 2


def test_a_page_brings_no_more_than_fills_it(
    place: Place, steps: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "STEP_RECORDS", 4)
    route(place)
    place.fill("a", 20)
    page = place.log.diff("b", limit=3)
    assert (seqs_of(page), page.caught_up, steps) == ([1, 2, 3], False, [("b", 4)])
    page = place.log.diff("b", from_seq=4, limit=4)
    assert (seqs_of(page), page.caught_up, len(steps)) == ([5, 6, 7, 8], False, 3)
    page = place.log.diff("b", from_seq=4, limit=7)
    assert (len(page.records), page.caught_up, len(steps)) == (7, False, 3)
    assert data(place) == list(range(20))
    assert place.log.engine.router_state("r").lag == 0


def test_a_page_that_would_end_with_the_topic_brings_all(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "STEP_RECORDS", 2)
    route(place)
    place.fill("a", 9)
    place.log.append("a", [{"data": "rare", "tag": "x"}])
    page = place.log.diff("b", limit=2, match="x")
    assert [r.data for r in page.records] == ["rare"]
    assert page.caught_up
    assert place.log.engine.router_state("r").lag == 0


def test_a_page_has_what_was_due_when_it_was_asked_for(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, real = place.log.engine, Engine.read

    def read(self: Engine, topic: Topic, request: DiffRequest) -> Page:
        page = real(self, topic, request)
        engine.forward_once()  # as the thread of the routers may at this very moment
        return page

    route(place)
    place.fill("a", 3)
    monkeypatch.setattr(Engine, "read", read)
    page = place.log.diff("b")
    assert (seqs_of(page), page.caught_up) == ([1, 2, 3], True)


def test_a_chain_is_due_while_a_record_is_between_its_links(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = place.log.engine
    route(place)
    engine.put_router("s", {"source": "b", "dest": "c"})
    place.fill("a", 1)
    first = engine.topic("b").link
    assert first is not None
    asked: list[Link] = []

    def is_due(link: Link) -> bool:
        found = link.cursor < link.source.head_seq
        asked.append(link)
        if len(asked) == 1:
            engine._forwarder.forward(first)  # between this question and the next
        return found

    monkeypatch.setattr(Link, "is_due", property(is_due))
    assert engine.must_forward(engine.topic("c"))


def test_a_read_of_a_full_destination_tries_once(
    place: Place, steps: list[tuple[str, int]]
) -> None:
    place.log.create("b", cap_records=1, discard="reject")
    route(place)
    place.fill("a", 2)
    assert data(place) == [0]
    link = place.log.engine.topic("b").link
    assert link is not None
    before, tried = link.backoff_ms, len(steps)
    place.log.diff("b", from_seq=1)
    assert (link.backoff_ms, len(steps)) == (2 * before, tried + 1)


def test_a_delete_in_the_middle_of_a_step_changes_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ServerConfig(data_dir=str(tmp_path), wal_shards=1, segment_max_events=4)
    with Log(config, background=False) as log:
        for name in ("a", "b"):
            log.create(name)
        log.engine.put_router("r", AB)
        log.append("a", [{"data": i, "tag": f"t{i}"} for i in range(9)])
        log.engine.checkpoint()

        def count_and_delete(*arguments: Any) -> tuple[int, int]:  # noqa: ANN401 - of count_live
            found = count_live(*arguments)
            log.delete("a", match="t1")
            return found

        monkeypatch.setattr(copy, "count_live", count_and_delete)
        page = log.diff("b")
        assert [record.data for record in page.records] == list(range(9))
    assert seqs_of(page) == list(range(1, 10))


def test_damage_holds_back_nothing_that_is_before_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    route(place)
    place.fill("a", 8)
    place.log.engine.checkpoint()
    real = gather.copy_run

    def copy_run(link: Link, run: Run, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - of copy_run
        if run.first_seq == 5:
            raise CorruptData("bad")
        return real(link, run, *arguments, **named)

    monkeypatch.setattr(gather, "copy_run", copy_run)
    assert data(place) == [0, 1, 2, 3]
    with pytest.raises(CorruptData):
        place.log.engine.forward_for(place.log.engine.topic("b"))


def test_a_step_takes_one_cold_segment(place: Place, steps: list[tuple[str, int]]) -> None:
    route(place)
    place.fill("a", 13)
    place.log.engine.checkpoint()
    place.log.engine.relocate()
    assert {s.tier for s in place.log.engine.topic("a").segments() if s.sealed} == {"cold"}
    assert data(place) == list(range(13))
    assert steps == [("b", 4), ("b", 4), ("b", 4), ("b", 1)]


class NoticedLock:
    """A lock that says when somebody has it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.taken = threading.Event()

    def __enter__(self) -> None:
        self._lock.acquire()
        self.taken.set()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()


def test_a_reader_waits_for_one_step_of_others_not_for_all(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "STEP_RECORDS", 2)
    engine = place.log.engine
    route(place)
    engine.put_router("s", {"source": "a", "dest": "c"})
    place.fill("a", 10)
    heads: list[int] = []
    reader = threading.Thread(target=lambda: heads.append(place.log.state("c").head_seq))
    real = Forwarder._step
    turn = NoticedLock()

    def step(self: Forwarder, link: Link, head_seq: int, limit: int) -> int:
        if link.dest.name == "b" and not reader.is_alive() and not heads:
            turn.taken.clear()
            reader.start()
            assert turn.taken.wait(DEADLINE_S)
        return real(self, link, head_seq, limit)

    monkeypatch.setattr(engine._routers, "_turn", turn)
    monkeypatch.setattr(Forwarder, "_step", step)
    assert engine.forward_once()
    assert engine.router_state("r").lag == 8
    reader.join(DEADLINE_S)
    assert heads == [10]
    assert engine.has_due_routers
    assert engine.forward_once()
    assert engine.router_state("r").lag == 0


def test_a_turn_makes_a_step_however_many_readers_wait(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "STEP_RECORDS", 1)
    engine = place.log.engine
    route(place)
    engine.put_router("s", {"source": "a", "dest": "c"})
    place.fill("a", 3)
    for _ in range(6):
        assert engine._forwarder.forward_once(is_over=lambda: True)
    assert [state.lag for state in engine.routers()] == [0, 0]
    assert not engine.has_due_routers


def test_who_is_furthest_behind_goes_first(place: Place, steps: list[tuple[str, int]]) -> None:
    engine = place.log.engine
    route(place)
    engine.put_router("s", {"source": "a", "dest": "c"})
    place.fill("a", 5)
    assert place.log.state("b").head_seq == 5
    place.fill("a", 1)
    engine._forwarder.forward_once(is_over=lambda: True)
    assert steps == [("b", 5), ("c", 6)]


def test_exactly_once_says_where_a_copy_comes_from(place: Place) -> None:
    route(place, guarantee="exactly_once")
    place.log.create("c")
    again = {"source": "b", "dest": "c", "guarantee": "exactly_once"}
    place.log.engine.put_router("s", again)
    place.log.append("a", [{"data": 1}, {"data": 2, "meta": {}}, {"data": 3, "meta": {"k": [1.0]}}])
    a, b = place.log.state("a").epoch, place.log.state("b").epoch
    first, second, third = read(place)
    assert first.meta == {"_topics_router": f"r:{a}:1"}
    assert second.meta == {"_topics_router": f"r:{a}:2"}
    assert bytes(third.meta_json) == b'{"_topics_router":"r:%d:3","k":[1.0]}' % a
    assert [r.meta for r in read(place, "c")][2] == {"_topics_router": f"s:{b}:3", "k": [1.0]}
    assert [r.data for r in read(place, "c")] == [1, 2, 3]


def test_deletes_do_not_travel(place: Place) -> None:
    route(place)
    place.fill("a", 4, tag="x")
    assert len(data(place)) == 4
    place.log.delete("a", match="x")
    assert len(data(place)) == 4
    place.kill()
    assert (len(data(place)), len(data(place, "a"))) == (4, 0)


def test_a_record_deleted_before_it_was_forwarded_is_copied_as_if_it_came_at_once(
    place: Place,
) -> None:
    route(place)
    place.fill("a", 4, tag="x")
    place.log.delete("a", match="x")
    place.log.engine.maintain()
    assert data(place) == [0, 1, 2, 3]
    place.kill()
    assert data(place) == [0, 1, 2, 3]


def test_what_a_source_evicts_is_kept_until_its_copies_are_safe(place: Place) -> None:
    place.log.create("a", cap_records=3)
    route(place)
    for batch in range(3):
        place.log.append("a", [{"data": batch * 9 + i} for i in range(9)])
    place.log.engine.checkpoint()
    place.log.engine.maintain()
    assert data(place) == list(range(27))
    place.kill()
    assert data(place) == list(range(27))
    place.log.engine.checkpoint()
    place.log.engine.maintain()
    assert place.log.state("a").segments < 3
    assert data(place) == list(range(27))


# A destination that refuses.


def fill_up(place: Place) -> None:
    """Have five records wait for room, of which the source then loses two."""
    place.log.create("a", cap_records=3)
    place.log.create("b", cap_records=4, discard="reject")
    route(place)
    place.log.append("a", [{"data": i} for i in (1, 2, 3)])
    assert place.log.engine.forward_once()
    place.log.append("a", [{"data": i} for i in (4, 5, 6)])
    place.log.engine.forward_once()
    place.log.append("a", [{"data": i} for i in (7, 8, 9)])


def test_a_full_destination_takes_what_fits_and_holds_the_rest(place: Place) -> None:
    place.log.create("b", cap_records=4, discard="reject")
    route(place)
    place.log.append("a", [{"data": i} for i in range(6)])
    assert data(place) == [0, 1, 2, 3]
    assert place.log.engine.router_state("r").lag == 2
    place.log.delete("b", before_seq=2)
    assert data(place) == [1, 2, 3, 4]
    place.kill()
    assert data(place) == [1, 2, 3, 4]
    place.log.delete("b", before_seq=4)
    assert data(place) == [3, 4, 5]


def test_a_held_router_is_tried_again_later_and_blocks_nobody(place: Place) -> None:
    place.log.create("b", cap_records=1, discard="reject")
    place.log.create("c")
    route(place)
    place.log.engine.put_router("s", {"source": "a", "dest": "c"})
    place.fill("a", 3)
    assert place.log.engine.forward_once()
    assert place.log.engine.router_state("s").lag == 0
    place.log.delete("b", before_seq=2)
    assert not place.log.engine.forward_once()  # not yet
    place.clock.advance_ms(100)
    assert place.log.engine.forward_once()
    assert place.log.engine.router_state("r").lag == 1


def test_what_the_source_lost_meanwhile_is_announced(place: Place) -> None:
    fill_up(place)
    place.log.delete("b", before_seq=4)
    place.log.diff("b")
    page = place.log.diff("b", from_seq=4)
    assert gap_of(page) == (5, 6, "source_trim")
    assert [(r.seq, r.data) for r in page.records] == [(7, 7), (8, 8), (9, 9)]
    place.kill()
    assert gap_of(place.log.diff("b", from_seq=4)) == (5, 6, "source_trim")
    place.log.engine.snapshot()
    place.kill()
    page = place.log.diff("b", from_seq=4)
    assert gap_of(page) == (5, 6, "source_trim")
    assert [(r.seq, r.data) for r in page.records] == [(7, 7), (8, 8), (9, 9)]


def test_a_loss_is_announced_along_a_chain(place: Place) -> None:
    place.log.create("c")
    place.log.engine.put_router("s", {"source": "b", "dest": "c"})
    fill_up(place)
    place.log.delete("b", before_seq=4)
    assert gap_of(place.log.diff("c", from_seq=4)) == (5, 6, "source_trim")
    place.kill()
    page = place.log.diff("c", from_seq=4)
    assert gap_of(page) == (5, 6, "source_trim")
    assert [(r.seq, r.data) for r in page.records] == [(7, 7), (8, 8), (9, 9)]


def test_a_destination_may_start_and_stop_to_refuse(place: Place) -> None:
    route(place)
    place.fill("a", 3)
    assert len(data(place)) == 3
    place.log.create("b", cap_records=4, discard="reject")
    place.log.sync()
    place.cut()
    assert [r.seq for r in read(place)] == [1, 2, 3]
    place.fill("a", 3)
    assert len(data(place)) == 4
    place.log.delete("a", before_seq=place.log.state("a").head_seq)
    place.log.delete("b", before_seq=3)
    assert len(data(place)) == 3  # the one but last was deleted while it waited
    place.log.create("b", cap_records=0, discard="old")
    place.fill("a", 3)
    wanted = read(place)
    place.kill()
    assert read(place) == wanted


# Circles, and topics in memory.


def test_a_circle_ends_after_sixteen_hops(place: Place) -> None:
    route(place)
    back = {"source": "b", "dest": "a", "allow_cycle": True}
    place.log.engine.put_router("s", back)
    place.fill("a", 1)
    while place.log.engine.forward_once():
        pass
    assert (len(data(place, "a")), len(data(place))) == (9, 8)
    place.kill()
    assert len(data(place, "a")) >= 9


def test_copies_of_an_ephemeral_source_are_as_safe_as_their_topic(place: Place) -> None:
    place.log.create("e", durability="ephemeral")
    place.log.create("d", durability="fsync")
    place.log.engine.put_router("r", {"source": "e", "dest": "d"})
    place.fill("e", 3)
    assert data(place, "d") == [0, 1, 2]
    place.cut()
    assert data(place, "d") == [0, 1, 2]
    assert data(place, "e") == []
    place.fill("e", 1)
    assert data(place, "d") == [0, 1, 2, 0]


def test_copies_in_an_ephemeral_destination_go_with_it(place: Place) -> None:
    place.log.create("e", durability="ephemeral")
    place.log.engine.put_router("r", {"source": "a", "dest": "e"})
    place.fill("a", 3)
    assert data(place, "e") == [0, 1, 2]
    head = place.log.state("e").head_seq
    place.cut()
    assert place.log.state("e").head_seq >= head
    place.log.append("a", [{"data": "new"}])
    assert data(place, "e")[-1:] == ["new"]


def test_a_copy_in_an_fsync_topic_waits_until_its_source_is_safe(place: Place) -> None:
    place.stop(wal_shards=2)
    place.log.create("m", durability="disk")
    place.log.create("d", durability="fsync")
    shards = [place.log.engine.shard_of(place.log.engine.topic(t)).number for t in ("a", "d")]
    assert len(set(shards)) == 2, "the sync of one must not help the other"
    place.log.engine.put_router("r", {"source": "a", "dest": "m"})
    place.log.engine.put_router("s", {"source": "m", "dest": "d"})
    for _ in range(2):  # the first write reserves seqs, and is synced with that
        place.fill("a", 3)
        assert data(place, "d")[-3:] == [0, 1, 2]
    place.cut()
    assert data(place, "d") == [0, 1, 2] * 2


def test_another_number_of_shards_makes_the_same_copies(place: Place) -> None:
    route(place)
    wanted: list[Record] = []
    for shards in (2, 3, 1):
        place.fill("a", 3)
        place.fill("b", 1)
        place.log.engine.checkpoint()
        place.fill("a", 2)
        wanted = read(place)
        place.kill(wal_shards=shards)
        assert read(place) == wanted
    assert len(wanted) == 18


def test_a_destination_that_only_knows_of_losses_has_nothing_earlier(place: Place) -> None:
    place.log.create("a", cap_records=3)
    place.log.create("b", cap_records=6, discard="reject")
    route(place, filter=["tag", "Eq", "t"])
    place.fill("a", 9)
    assert gap_of(place.log.diff("b")) == (1, 6, "source_trim")
    assert place.log.state("b").earliest_seq == 7
    place.kill()
    assert gap_of(place.log.diff("b")) == (1, 6, "source_trim")
    assert place.log.state("b").earliest_seq == 7


def test_a_copy_that_can_never_fit_is_told_as_lost_and_blocks_nobody(place: Place) -> None:
    place.log.create("b", cap_bytes=200, discard="reject")
    route(place)
    place.log.append("a", [{"data": 1}, {"data": "x" * 500}, {"data": 3}])
    for _ in range(2):
        page = place.log.diff("b", from_seq=1)
        assert gap_of(page) == (2, 2, "source_trim")
        assert [(r.seq, r.data) for r in page.records] == [(3, 3)]
        assert data(place)[:1] == [1]
        place.kill()
