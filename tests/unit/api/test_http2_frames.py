"""Frames that cost work: a few at a time, and only so many that ask for nothing."""

import h2.errors
import pytest
from hpack import Encoder
from hpack.exceptions import HPACKError

from topics.api import http2_frames as module
from topics.api.http2_frames import FrameRefusal, Frames, HeadDecoder

PREFACE = b"P" * module.PREFACE_BYTES
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = (
    0, 1, 2, 3, 4, 6, 8, 9,
)  # fmt: skip
END_STREAM, END_HEADERS, PADDED = 1, 4, 8
CALM = h2.errors.ErrorCodes.ENHANCE_YOUR_CALM


def frame(kind: int, payload: bytes = b"", *, flags: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + b"\0\0\0\1" + payload


def opened() -> Frames:
    frames = Frames(now_s=0.0)
    first = PREFACE + frame(HEADERS, flags=END_HEADERS)
    frames.add(first)
    assert frames.cut(0.0) == first
    return frames


def pieces(frames: Frames, now_s: float = 0.0) -> list[bytes]:
    found = []
    while piece := frames.cut(now_s):
        found.append(piece)
    return found


@pytest.mark.parametrize("size", [1, 5, 9, 100, 10_000])
def test_pieces_are_whole_frames_in_order_however_they_were_cut(size: int) -> None:
    sent = b"".join(frame(DATA, b"x" * (64 + n)) for n in range(50)) + frame(DATA)[:8]
    frames, found = opened(), b""
    for at in range(0, len(sent), size):
        frames.add(sent[at : at + size])
        found += b"".join(pieces(frames))
    assert found == sent[:-8]
    assert frames.size == 8


@pytest.mark.parametrize("kind", [DATA, HEADERS, PING, WINDOW_UPDATE])
def test_a_piece_holds_few_frames_and_fewer_of_those_that_cost_more(kind: int) -> None:
    frames = opened()
    one = frame(kind, b"x" * 64, flags=END_HEADERS)
    frames.add(one * 500)
    cost = module._COSTS.get(kind, 1)
    assert {len(piece) // len(one) for piece in pieces(frames)[:-1]} == {module.PIECE_COST // cost}


@pytest.mark.parametrize(
    ("flood", "taken"),
    [
        (frame(PING, b"12345678"), module.MAX_CONTROL_FRAMES),
        (frame(SETTINGS), module.MAX_CONTROL_FRAMES),
        (frame(PRIORITY, b"12345"), module.MAX_CONTROL_FRAMES),
        (frame(0x33), module.MAX_CONTROL_FRAMES),
        (frame(DATA), module.MAX_CONTROL_FRAMES),
        (frame(DATA, b"\xff" + b"\0" * 255, flags=PADDED), module.MAX_CONTROL_FRAMES),
        (frame(CONTINUATION), module.MAX_CONTROL_FRAMES),
        (frame(DATA, b"x"), module.MAX_CONTROL_FRAMES * module.TINY_PER_CONTROL),
        (frame(WINDOW_UPDATE, b"1234"), 2 * module.MAX_CONTROL_FRAMES + module.UPDATES_PER_FRAME),
        (frame(RST_STREAM, b"1234"), module.MAX_RESETS),
    ],
    ids=["ping", "settings", "priority", "unknown", "empty", "padding", "continuation", "tiny",
         "windows", "resets"],
)  # fmt: skip
def test_a_flood_of_what_asks_for_nothing_is_refused(flood: bytes, taken: int) -> None:
    frames = opened()
    frames.add(flood * taken)
    assert b"".join(pieces(frames)) == flood * taken
    frames.add(flood)
    with pytest.raises(FrameRefusal) as refused:
        pieces(frames)
    assert refused.value.code == CALM


def test_what_comes_now_and_then_is_no_flood() -> None:
    frames = opened()
    for number in range(3 * module.MAX_CONTROL_FRAMES):
        frames.add(frame(PING, b"12345678") + frame(RST_STREAM, b"1234") * (number % 20 == 0))
        pieces(frames, number * 0.02)


def test_who_takes_much_may_open_its_windows_as_often() -> None:
    frames = opened()
    for _ in range(10 * module.MAX_CONTROL_FRAMES):
        frames.allow_updates(1)
        frames.add(frame(WINDOW_UPDATE, b"1234") * 2)
        pieces(frames)


def test_a_frame_that_is_too_long_is_refused_by_its_head() -> None:
    frames = opened()
    frames.add((module.MAX_FRAME_BYTES + 1).to_bytes(3, "big") + b"\0\0\0\0\0\1")
    with pytest.raises(FrameRefusal) as refused:
        frames.cut(0.0)
    assert refused.value.code == h2.errors.ErrorCodes.FRAME_SIZE_ERROR


def test_a_head_in_many_frames_is_bounded() -> None:
    frames = opened()
    part = b"x" * 16_000
    frames.add(frame(HEADERS, part) + frame(CONTINUATION, part) * 7)
    assert len(pieces(frames)) == 2
    frames.add(frame(CONTINUATION, part))
    with pytest.raises(FrameRefusal) as refused:
        pieces(frames)
    assert refused.value.code == CALM


def test_an_ordinary_head_is_unpacked() -> None:
    fields = [(b"a", b"b"), (b"accept", b"*/*")] * (module.MAX_FIELDS // 2)
    assert [
        tuple(field) for field in HeadDecoder().decode(Encoder().encode(fields), raw=True)
    ] == fields


@pytest.mark.parametrize(
    "packed",
    [
        b"\x20" * 3,
        b"\x00\x01a\x00" * (module.MAX_FIELDS + 1),
        b"\x82" * (module.MAX_FIELDS + 1),
        b"\x40\x01x\x7f\xbd\x1d" + b"y" * 3900 + b"\xbe" * 200,
    ],
    ids=["resizes", "literals", "indexed", "bomb"],
)
def test_a_head_that_costs_more_than_its_size_is_refused(packed: bytes) -> None:
    with pytest.raises(HPACKError):
        HeadDecoder().decode(packed, raw=True)
