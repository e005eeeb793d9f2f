"""Control frames of every type: they come back as they went in, and damage is never believed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.kernel import FLAG_BATCH_OPEN, find_frame, scan_frames
from topics.storage.wal import frame
from topics.storage.wal.frame import (
    BODY_TYPES,
    Body,
    FrameType,
    decode_control,
    encode_control,
    frame_ts,
)

U64 = st.integers(0, 2**64 - 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FIELDS = st.dictionaries(NAMES, U64 | NAMES | st.booleans() | st.none(), max_size=4)
MATCHES = st.none() | st.tuples(st.sampled_from(("Eq", "Glob")), NAMES)
SEQS = st.lists(U64, max_size=4)

BODIES: dict[type[Body], st.SearchStrategy[Body]] = {
    frame.TopicCreate: st.builds(frame.TopicCreate, NAMES, FIELDS, U64, U64, U64, U64),
    frame.TopicDelete: st.builds(frame.TopicDelete),
    frame.RouterCreate: st.builds(frame.RouterCreate, NAMES, FIELDS, U64, U64, U64, U64),
    frame.RouterDelete: st.builds(frame.RouterDelete, NAMES),
    frame.Delete: st.builds(frame.Delete, U64, MATCHES, U64),
    frame.EvictWatermark: st.builds(frame.EvictWatermark, U64, U64, NAMES),
    frame.CheckpointMark: st.builds(
        frame.CheckpointMark,
        st.dictionaries(U64, U64, max_size=5),
        st.dictionaries(U64, st.tuples(U64, U64), max_size=5),
    ),
    frame.ConfigUpdate: st.builds(frame.ConfigUpdate, FIELDS, U64),
    frame.Lease: st.builds(frame.Lease, NAMES, NAMES, SEQS, st.lists(NAMES, max_size=3), U64),
    frame.HeadWatermark: st.builds(frame.HeadWatermark, U64),
    frame.Dedupe: st.builds(frame.Dedupe, st.none() | NAMES, st.none() | NAMES, U64, U64, U64),
    frame.Group: st.builds(frame.Group, NAMES, NAMES, FIELDS),
    frame.Hole: st.builds(frame.Hole, U64, U64, NAMES),
    frame.Tier: st.builds(frame.Tier, U64, NAMES),
    frame.SyncMark: st.builds(frame.SyncMark, U64, U64),
}
ANY_BODY = st.one_of(*BODIES.values())


def test_every_frame_type_but_append_has_a_body_that_is_tested_here() -> None:
    assert set(BODY_TYPES) == set(FrameType) - {FrameType.APPEND}
    assert set(BODY_TYPES.values()) == set(BODIES)


@pytest.mark.parametrize("kind", BODIES, ids=lambda kind: kind.__name__)
@given(choose=st.data())
def test_a_body_comes_back(kind: type[Body], choose: st.DataObject) -> None:
    body = choose.draw(BODIES[kind])
    topic_id, ts = choose.draw(U64), choose.draw(U64)
    encoded = encode_control(body, topic_id=topic_id, ts=ts)
    padding = b"\xff" * choose.draw(st.integers(0, 5))
    assert decode_control(padding + encoded, len(padding)) == body
    assert frame_ts(padding + encoded, len(padding)) == ts
    scan = scan_frames(encoded, 0, len(encoded))
    assert [run[:3] for run in scan.runs] == [(frame._TYPE_OF_BODY[kind], topic_id, 0)]
    assert (scan.end, scan.clean) == (len(encoded), True)


@given(body=ANY_BODY, choose=st.data())
def test_a_frame_cut_anywhere_is_not_a_frame(body: Body, choose: st.DataObject) -> None:
    encoded = encode_control(body)
    kept = choose.draw(st.integers(0, len(encoded) - 1))
    scan = scan_frames(encoded[:kept], 0, kept)
    assert (scan.runs, scan.end) == ([], 0)
    assert find_frame(encoded[:kept], 0, kept) == -1


@given(body=ANY_BODY, choose=st.data())
def test_a_flipped_bit_is_always_noticed(body: Body, choose: st.DataObject) -> None:
    damaged = bytearray(encode_control(body))
    bit = choose.draw(st.integers(0, len(damaged) * 8 - 1))
    damaged[bit // 8] ^= 1 << (bit % 8)
    assert scan_frames(damaged, 0, len(damaged)).runs == []


@given(bodies=st.lists(ANY_BODY, min_size=1, max_size=6), choose=st.data())
def test_a_frame_left_open_takes_its_batch_along(bodies: list[Body], choose: st.DataObject) -> None:
    opens = choose.draw(st.lists(st.booleans(), min_size=len(bodies), max_size=len(bodies)))
    frames = [
        encode_control(body, flags=FLAG_BATCH_OPEN if is_open else 0)
        for body, is_open in zip(bodies, opens, strict=True)
    ]
    buffer = b"".join(frames)
    whole = max((i + 1 for i, is_open in enumerate(opens) if not is_open), default=0)
    scan = scan_frames(buffer, 0, len(buffer))
    assert len(scan.runs) == whole
    assert scan.end == sum(map(len, frames[:whole]))
    assert scan.stopped == len(buffer)
