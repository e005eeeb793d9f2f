"""Events are the same however their bytes are cut, and hold no more than they may."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.client import sse
from topics.client.sse import Event, EventParser
from topics.errors import TopicsError

LINE_ENDS = st.sampled_from((b"\n", b"\r\n", b"\r"))
TEXT = st.text("a: \x0b\x85é\u2028\ufeff😀", max_size=12)
NOISE = st.sampled_from((b": hb 1", b":", b"retry: 2000", b"unknown: 1", b"data-x", b"id: a\0b"))


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[Event]]:
    """Return the bytes of a stream and the events in them."""
    end = draw(LINE_ENDS)
    lines = [b"\xef\xbb\xbf"] if draw(st.booleans()) else []
    events = []
    last_id = ""
    for _ in range(draw(st.integers(0, 4))):
        lines += draw(st.lists(NOISE, max_size=2))
        kind, data = draw(TEXT), draw(st.lists(TEXT, max_size=3))
        if draw(st.booleans()):
            last_id = draw(TEXT)
            lines.append(b"id: " + last_id.encode())
        lines.append(b"event: " + kind.encode())
        lines += [b"data: " + line.encode() for line in data]
        lines.append(b"")
        if data:
            events.append(Event(kind or "message", "\n".join(data).encode(), last_id))
    bom = b"" if not lines or lines[0] != b"\xef\xbb\xbf" else lines.pop(0)
    return bom + b"".join(line + end for line in lines), events


@given(streams(), st.data())
def test_events_are_the_same_however_they_are_cut(
    stream: tuple[bytes, list[Event]], data: st.DataObject
) -> None:
    text, events = stream
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=12))
    parser = EventParser()
    found: list[Event] = []
    for start, end in pairwise(sorted([0, *cuts, len(text)])):
        found += parser.feed(text[start:end])
    assert found == events


@given(streams())
def test_events_are_the_same_byte_by_byte(stream: tuple[bytes, list[Event]]) -> None:
    text, events = stream
    parser = EventParser()
    assert [event for at in range(len(text)) for event in parser.feed(text[at : at + 1])] == events


@given(st.binary(max_size=200))
def test_any_bytes_are_taken(text: bytes) -> None:
    EventParser().feed(text)


def test_a_value_may_hold_what_ends_lines_elsewhere() -> None:
    text = "data: a\x0b\x0c\x1c\x85\u2028b\n\n".encode()
    assert EventParser().feed(text) == [Event("message", text[6:-2], "")]


@pytest.mark.parametrize("piece", [b"x" * 10, b"data: " + b"x" * 10 + b"\n"])
def test_an_event_without_an_end_is_given_up(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    parser = EventParser()
    for _ in range(6):
        parser.feed(piece)
    with pytest.raises(TopicsError, match="more than 100 bytes"):
        parser.feed(piece * 5)


def test_comments_and_whole_events_take_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    parser = EventParser()
    for _ in range(50):
        assert parser.feed(b": hb 1234567890\n\n") == []
        assert parser.feed(b": hb 1234567890\n") == []
        assert len(parser.feed(b"data: 1234567890\n\n")) == 1
