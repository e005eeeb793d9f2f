"""A plan covers what was asked for exactly once, and says what is lost."""

from hypothesis import given
from hypothesis.strategies import booleans, integers, lists, tuples
from msgspec import structs
from tests.pipeline.manifests import manifest, segment

from topics.model.segments import Manifest
from topics.pipeline.offsets import Part, PartRange
from topics.pipeline.options import Via
from topics.pipeline.plan import (
    INDEX_TASK_RECORDS,
    TASK_BYTES,
    TASK_RECORDS,
    Gap,
    Plan,
    Span,
    cut,
    plan_batch,
    plan_stream,
    split_lost,
    task_records,
)
from topics.pipeline.push_down import Bounds

A = Part("a", "a")


def wanted(start: int, end: int) -> PartRange:
    return PartRange(part=A, epoch=1, start=start, end=end)


def batch(
    one: PartRange,
    of: Manifest,
    bounds: Bounds | None = None,
    *,
    records_per_task: int = 1000,
    min_tasks: int = 1,
    via: Via = "auto",
) -> Plan:
    return plan_batch(
        [one],
        {"a": of},
        bounds or Bounds(),
        records_per_task=records_per_task,
        min_tasks=min_tasks,
        via=via,
    )


def covered(plan: Plan) -> list[int]:
    """List every seq that a task reads, in the order of the tasks."""
    spans = [piece.span for task in plan.tasks for piece in task.pieces]
    return [seq for span in spans for seq in range(span.first_seq, span.last_seq + 1)]


@given(
    sizes=lists(tuples(integers(1, 30), booleans()), max_size=5),
    tail=integers(0, 20),
    start=integers(0, 60),
    length=integers(0, 120),
    per_task=integers(1, 50),
    min_tasks=integers(1, 6),
)
def test_every_seq_is_read_once_and_in_order(
    *,
    sizes: list[tuple[int, bool]],
    tail: int,
    start: int,
    length: int,
    per_task: int,
    min_tasks: int,
) -> None:
    segments, first = [], 1
    for size, sealed in sizes:
        segments.append(segment(first, first + size - 1, sealed=sealed))
        first += size
    head = first - 1 + tail
    start = min(start, head)
    end = min(head, start + length)
    plan = batch(
        wanted(start, end), manifest(*segments, head=head), records_per_task=per_task,
        min_tasks=min_tasks,
    )  # fmt: skip
    assert covered(plan) == list(range(start + 1, end + 1))
    for task in plan.tasks:
        for piece in task.pieces:
            if piece.data is not None:
                inside = next(s for s in segments if s.first_seq == piece.file_first_seq)
                assert inside.sealed
                assert inside.first_seq <= piece.span.first_seq
                assert piece.span.last_seq <= inside.last_seq


@given(lengths=lists(integers(1, 100), max_size=5), per_task=integers(1, 80), tasks=integers(1, 9))
def test_shares_are_equal_but_for_the_last(lengths: list[int], per_task: int, tasks: int) -> None:
    spans = [Span(Part(f"{i}", f"{i}"), 1, 1, length) for i, length in enumerate(lengths)]
    shares = cut(spans, records_per_task=per_task, min_tasks=tasks)
    counts = [sum(span.last_seq - span.first_seq + 1 for span in share) for share in shares]
    assert sum(counts) == sum(lengths)
    assert len(set(counts[:-1])) <= 1
    assert all(count <= per_task for count in counts)
    assert len(counts) >= min(tasks, sum(lengths)) or len(counts) * counts[0] >= sum(lengths)


def test_small_segments_share_a_task() -> None:
    segments = [segment(first, first + 9) for first in range(1, 1000, 10)]
    plan = batch(wanted(0, 1000), manifest(*segments, head=1000), records_per_task=500)
    assert len(plan.tasks) == 2
    assert plan.segments_read == plan.segments == 100


def test_http_reads_no_file_and_the_tail_has_none() -> None:
    whole = manifest(segment(1, 10), segment(11, 20, sealed=False), head=25)
    by_file = batch(wanted(0, 25), whole)
    assert [piece.data is not None for piece in by_file.tasks[0].pieces] == [True, False]
    by_http = batch(wanted(0, 25), whole, via="http")
    assert [piece.data for piece in by_http.tasks[0].pieces] == [None]
    assert covered(by_http) == covered(by_file)


def test_bounds_on_seq_and_time_leave_segments_out() -> None:
    whole = manifest(*(segment(first, first + 9) for first in range(1, 100, 10)), head=100)
    assert batch(wanted(0, 100), whole, Bounds(first_seq=91)).segments_read == 1
    assert batch(wanted(0, 100), whole, Bounds(last_seq=0)).tasks == ()
    in_time = batch(wanted(0, 100), whole, Bounds(first_ts=400, last_ts=450))
    assert in_time.segments_read == 2
    assert covered(in_time) == list(range(31, 51))
    assert batch(wanted(0, 100), whole, Bounds(topics=frozenset({"b"}))).tasks == ()


def test_what_was_evicted_and_what_a_crash_took_are_gaps_what_was_deleted_is_none() -> None:
    lossy = manifest(
        segment(11, 40), head=40, evict_floor=11, earliest=14, holes=((20, 24, "crash"),)
    )
    gaps, live = split_lost(Span(A, 1, 1, 30), lossy)
    assert gaps == [Gap(A, 1, 13, "cap"), Gap(A, 20, 24, "crash")]
    assert live == [Span(A, 1, 14, 19), Span(A, 1, 25, 30)]
    assert split_lost(Span(A, 1, 11, 15), lossy) == ([], [Span(A, 1, 14, 15)])
    removed = manifest(segment(1, 9), head=20, holes=((10, 20, "deleted"),))
    assert split_lost(Span(A, 1, 1, 20), removed) == ([], [Span(A, 1, 1, 9)])


def test_what_a_crash_took_is_a_gap_although_nothing_before_it_is_left() -> None:
    lossy = manifest(segment(51, 60), head=60, earliest=51, holes=((1, 50, "crash"),))
    assert split_lost(Span(A, 1, 1, 60), lossy) == (
        [Gap(A, 1, 50, "crash")],
        [Span(A, 1, 51, 60)],
    )
    assert split_lost(Span(A, 1, 31, 40), lossy) == ([Gap(A, 31, 40, "crash")], [])
    evicted_too = manifest(head=60, evict_floor=11, earliest=61, holes=((31, 50, "crash"),))
    assert split_lost(Span(A, 1, 1, 60), evicted_too) == ([Gap(A, 1, 60, "cap")], [])
    assert split_lost(Span(A, 1, 12, 60), evicted_too) == ([Gap(A, 31, 50, "crash")], [])


def test_a_gap_outside_the_range_is_nobodys_loss() -> None:
    lossy = manifest(segment(1, 40), head=40, holes=((20, 24, "crash"),))
    assert split_lost(Span(A, 1, 25, 30), lossy)[0] == []
    assert all(not task.gaps for task in batch(wanted(24, 40), lossy).tasks)
    assert all(not t.gaps for t in batch(wanted(0, 40), lossy, Bounds(first_seq=30)).tasks)
    assert batch(wanted(0, 40), lossy).tasks[-1].gaps == (Gap(A, 20, 24, "crash"),)


def test_the_tasks_of_a_stream_do_not_move_when_segments_do() -> None:
    def spans(of: Manifest) -> list[list[tuple[int, int]]]:
        plan = plan_stream(
            [wanted(0, 100)], {"a": of}, records_per_task=30, min_tasks=1, via="auto"
        )
        return [
            [(task.pieces[0].span.first_seq, task.pieces[-1].span.last_seq)] for task in plan.tasks
        ]

    early = manifest(head=100)
    late = manifest(segment(1, 47), segment(48, 100), head=500)
    assert spans(early) == spans(late) == [[(1, 30)], [(31, 60)], [(61, 90)], [(91, 100)]]


def test_a_stream_keeps_the_number_of_a_task_that_lost_everything() -> None:
    lossy = manifest(segment(51, 100), head=100, evict_floor=51)
    plan = plan_stream([wanted(0, 100)], {"a": lossy}, records_per_task=50, min_tasks=1, via="auto")
    assert [len(task.pieces) for task in plan.tasks] == [0, 1]
    assert plan.tasks[0].gaps == (Gap(A, 1, 50, "cap"),)


def test_a_task_takes_as_many_records_as_make_a_fair_size() -> None:
    light = manifest(segment(1, 100), head=100)
    heavy = manifest(structs.replace(segment(1, 1), bytes=1 << 20), head=1)
    assert task_records([light], reads_frames=True) == INDEX_TASK_RECORDS
    assert task_records([heavy], reads_frames=True) == TASK_BYTES >> 20
    assert task_records([heavy, light], reads_frames=False) == INDEX_TASK_RECORDS
    assert task_records([manifest(head=5)], reads_frames=True) == TASK_RECORDS


def test_a_record_larger_than_a_task_is_a_task() -> None:
    huge = structs.replace(segment(1, 2), bytes=TASK_BYTES * 5)
    assert task_records([manifest(huge, head=2)], reads_frames=True) == 1
