"""Properties of many bodies read into one batch, and of what their writers are told."""

import json

import pytest
from hypothesis import given
from hypothesis.strategies import binary, integers, just, lists, sampled_from, tuples
from tests.property.kernel.bodies import LIMITS, Body, bodies
from tests.property.kernel.frames import edits, harm
from tests.property.kernel.twins import TWINS, is_refused, outcome

from topics.engine.append import split_writes
from topics.errors import TopicsError
from topics.kernel import Batch, parse_batch, place_batch, split_batch

MAX_BYTES = 2048
plain = sampled_from(
    [
        b'{"records":[{"data":1}]}',
        b'{"records":[{"data":"a","tag":"t"},{"data":null,"meta":{"k":2}}],"node":"n"}',
        b'{"records":[%b]}' % b",".join([b'{"data":%d}' % n for n in range(30)]),
    ]
)
keyed = sampled_from(
    [
        b'{"records":[{"data":1,"key":"a"},{"data":2,"key":"b"},{"data":3,"tag":"a"},{"data":4}]}',
        b'{"records":[{"data":1,"key":"a","tag":"t"},{"data":2,"key":"b","tag":"t","meta":{"k":1}}]}',
        b'{"node":"n","records":[%b]}'
        % b",".join([b'{"data":%d,"key":"k%d"}' % (n, n % 7) for n in range(25)]),
        b'{"records":[{"data":1,"key":"a"},{"data":2,"key":7}]}',
    ]
)
unwanted = sampled_from(
    [
        b"",
        b"{",
        b'{"records":[]}',
        b'{"records":[{"data":1}],"create":true}',
        b'{"records":[{"data":1}],"whatever":0}',
        b'{"records":[{"tag":"no data"}]}',
        b'{"records":[{"data":"%b"}]}' % (b"x" * MAX_BYTES),
        b'{"records":[%b]}' % b",".join([b"{}"] * 60),
        b'{"records":[{"data":1}]}' + b" " * MAX_BYTES,
        b'{"records":[%b]}' % b",".join([b'{"data":0}'] * 49),  # small, but not as frames
    ]
)


def parse_alone(body: bytes, *, keyed: bool = False) -> Batch | None:
    """Return what a body is by itself, if it may be gathered."""
    try:
        batch = parse_batch(body, **LIMITS, keyed=keyed)
    except TopicsError:
        return None
    if batch.envelope or max(len(body), len(batch.frames)) > MAX_BYTES:
        return None
    return batch


def check_gathering(raw: list[bytes]) -> None:
    alone = [parse_alone(body) for body in raw]
    for twin in TWINS:
        gathering = twin.Gathering(max_bytes=MAX_BYTES, **LIMITS)
        taken = [gathering.add(body) for body in raw]
        assert taken == [0 if batch is None else batch.count for batch in alone]
        whole = gathering.take()
        assert gathering.take() == Batch(bytearray(), bytearray(), 0, 0, {})
        plain_ones = [batch for batch in alone if batch is not None]
        assert list(split_writes(whole, [batch.count for batch in plain_ones])) == plain_ones


@given(raw=lists(plain | unwanted, max_size=12))
def test_a_gathering_takes_what_is_plain_and_small_and_nothing_else(raw: list[bytes]) -> None:
    check_gathering(raw)


@given(found=lists(bodies(), max_size=4))
def test_gathered_bodies_come_out_as_if_each_were_read_alone(found: list[Body]) -> None:
    check_gathering([body.raw for body in found])


@given(raw=lists(tuples(plain, edits) | tuples(binary(max_size=60), just([])), max_size=6))
def test_a_harmed_body_changes_nothing_of_the_others(
    raw: list[tuple[bytes, list[tuple[int, int, bytes]]]],
) -> None:
    check_gathering([harm(body, changes) for body, changes in raw])


def check_dealing(raw: list[bytes], partitions: int, spare: int) -> None:
    """Deal the bodies, and see that each partition has what a split of each alone gives it."""
    wanted: list[object] = []
    parts: list[list[Batch]] = [[] for _ in range(partitions)]
    for body in raw:
        batch = parse_alone(body, keyed=True)
        if batch is None:
            wanted.append(None)
            continue
        places = place_batch(batch.hashes, partitions=partitions, spare=spare)
        split = split_batch(batch, places)
        for place, part in split:
            parts[place].append(part)
        wanted.append((places, [(place, part.count) for place, part in split]))
    for twin in TWINS:
        gatherings = [twin.Gathering(max_bytes=MAX_BYTES, **LIMITS) for _ in range(partitions)]
        assert [gatherings[0].deal(body, gatherings, spare=spare) for body in raw] == wanted
        for gathering, mine in zip(gatherings, parts, strict=True):
            whole = gathering.take()
            assert list(split_writes(whole, [part.count for part in mine])) == mine


@given(
    raw=lists(plain | keyed | unwanted, max_size=8),
    partitions=integers(1, 5),
    spare=integers(0, 4),
)
def test_dealt_records_are_where_a_split_would_put_them(
    raw: list[bytes], partitions: int, spare: int
) -> None:
    check_dealing(raw, partitions, spare % partitions)


@given(found=lists(bodies(), max_size=4), partitions=integers(1, 3))
def test_any_body_is_dealt_whole_or_not_at_all(found: list[Body], partitions: int) -> None:
    check_dealing([body.raw for body in found], partitions, 0)


@given(
    raw=lists(tuples(keyed, edits) | tuples(binary(max_size=60), just([])), max_size=6),
    partitions=integers(1, 3),
)
def test_a_harmed_body_is_dealt_as_it_reads_and_harms_no_other(
    raw: list[tuple[bytes, list[tuple[int, int, bytes]]]], partitions: int
) -> None:
    check_dealing([harm(body, changes) for body, changes in raw], partitions, 0)


def test_records_are_dealt_to_partitions_that_are_there() -> None:
    body = b'{"records":[{"data":1}]}'
    for twin in TWINS:
        reader = twin.Gathering(max_bytes=MAX_BYTES, **LIMITS)
        for gatherings, spare in ([], 0), ([reader], 1), ([reader], -1):
            with pytest.raises(ValueError, match="is not one of"):
                reader.deal(body, gatherings, spare=spare)
        assert reader.take().count == 0


def test_a_gathering_that_is_full_keeps_all_of_a_write_away() -> None:
    limits = {**LIMITS, "max_record_bytes": 1 << 21}
    large = b'{"records":[{"data":"%b"}]}' % (b"x" * 2_000_000)
    both = b'{"records":[{"data":"%b","key":"a"},{"data":1,"key":"b"}]}' % (b"x" * 1_000_000)
    for twin in TWINS:
        full, empty = [twin.Gathering(max_bytes=1 << 21, **limits) for _ in range(2)]
        assert [full.add(large) for _ in range(2)] == [1, 1]
        assert {place for place, _ in empty.deal(both, [empty, empty], spare=0)[1]} == {0, 1}
        assert empty.take().count == 2
        places = place_batch(parse_batch(both, **limits, keyed=True).hashes, partitions=2, spare=0)
        order = [full, empty] if places[0] == 0 else [empty, full]
        assert empty.deal(both, order, spare=0) is None
        assert (full.take().count, empty.take().count) == (2, 0)


@given(raw=lists(plain, max_size=6))
def test_batches_are_gathered_like_their_bodies(raw: list[bytes]) -> None:
    for twin in TWINS:
        by_body = twin.Gathering(max_bytes=MAX_BYTES, **LIMITS)
        by_batch = twin.Gathering(max_bytes=MAX_BYTES, **LIMITS)
        for body in raw:
            batch = parse_batch(body, **LIMITS, keyed=False)
            kept = Batch(batch.frames[:], batch.idx[:], batch.count, batch.payload_bytes, {})
            by_body.add(body)
            by_batch.add_batch(batch)
            assert batch == kept  # it may be tried again by itself
        assert by_batch.take() == by_body.take()


@given(idx=binary(max_size=45), count=integers(-2, 3), before=sampled_from([0, 1]))
def test_a_batch_that_does_not_fit_together_is_refused(idx: bytes, count: int, before: int) -> None:
    batch = Batch(bytearray(b"frames"), bytearray(idx), count, 0, {})
    results = []
    for twin in TWINS:
        gathering = twin.Gathering(max_bytes=MAX_BYTES, **LIMITS)
        for _ in range(before):
            gathering.add(b'{"records":[{"data":1}]}')
        results.append(outcome(gathering, "add_batch", batch))
        assert gathering.take().count == before + (count if results[-1] is True else 0)
    assert all(result == results[0] for result in results)
    if len(idx) != 20 * count:
        assert is_refused(results[0])


@given(
    counts=lists(integers(-1, 90), max_size=8),
    first_seq=integers(1, 2**40) | integers(2**64 - 200, 2**64 - 1),
)
def test_each_writer_is_told_its_own_seqs(counts: list[int], first_seq: int) -> None:
    writers = [(count, object()) for count in counts]
    parts = {"start": b'{"first_seq":', "middle": b',"count":', "end": b"}"}
    results = [
        outcome(twin, "format_answers", writers, first_seq=first_seq, **parts) for twin in TWINS
    ]
    assert all(result == results[0] for result in results)
    if any(count < 1 for count in counts) or first_seq + sum(counts) > 2**64:
        assert is_refused(results[0])
        return
    for count, answer in zip(counts, results[0], strict=True):
        seqs = list(range(first_seq, first_seq + count))
        assert json.loads(answer) == {
            "first_seq": seqs[0],
            "last_seq": seqs[-1],
            "seqs": seqs,
            "count": count,
        }
        first_seq += count


def test_a_gathering_ends_before_it_is_larger_than_a_queue_should_hear_of_at_once() -> None:
    body = b'{"records":[{"data":"%b"}]}' % (b"x" * 1_000_000)
    limits = {**LIMITS, "max_record_bytes": 1 << 21}
    for twin in TWINS:
        gathering = twin.Gathering(max_bytes=1 << 21, **limits)
        assert [gathering.add(body) for _ in range(6)] == [1, 1, 1, 1, 0, 0]
        batch = gathering.take()
        assert gathering.add(body) == 1
        assert not gathering.add_batch(batch)
        assert gathering.take().count == 1


@pytest.mark.parametrize("writer", [(), (1,), (1, 2, 3), None, "ab", 7])
def test_writers_of_another_shape_are_refused(writer: object) -> None:
    for twin in TWINS:
        with pytest.raises((TypeError, ValueError)):
            twin.format_answers([writer], first_seq=1, start=b"", middle=b"", end=b"")
