"""The envelope: what is one, what is not, and what is said about it."""

import pytest

from topics.broker.line import (
    MAX_ID_BYTES,
    MAX_LINE_BYTES,
    LineBuffer,
    Refusal,
    Request,
    TooLong,
    encode_value,
    format_ok,
    parse_request,
    refuse_too_long,
)


def take_all(buffer: LineBuffer) -> list[bytes | TooLong]:
    return list(iter(buffer.take, None))


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        (b"V1|7|PRODUCE|orders k:v", Request("7", "PRODUCE", "orders k:v")),
        (b"V1|7|produce|orders k:v", Request("7", "PRODUCE", "orders k:v")),
        (b"V1|7|Produce|a|b|c", Request("7", "PRODUCE", "a|b|c")),
        (b"V1|7|LEAVE", Request("7", "LEAVE", "")),
        (b"V1|7|LEAVE|", Request("7", "LEAVE", "")),
        (b"V1|7||", Request("7", "", "")),
        ("V1|é-1|X|ü".encode(), Request("é-1", "X", "ü")),
        (b"V1|" + b"x" * MAX_ID_BYTES + b"|X|", Request("x" * MAX_ID_BYTES, "X", "")),
    ],
)
def test_an_envelope_has_at_most_four_parts(line: bytes, request_: Request) -> None:
    assert parse_request(line) == request_


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"hello",
        b"V1",
        b"V1|7",
        b"v1|7|PRODUCE|x",
        b"V2|7|PRODUCE|x",
        b" V1|7|PRODUCE|x",
        b"V1||PRODUCE|x",
        b"V1|a\tb|PRODUCE|x",
        b"V1|a\x7fb|PRODUCE|x",
        b"V1|\xff|PRODUCE|x",
        b"V1|" + b"x" * (MAX_ID_BYTES + 1) + b"|PRODUCE|x",
    ],
)
def test_a_line_that_is_no_envelope_is_answered_with_id_0(line: bytes) -> None:
    refusal = parse_request(line)
    assert isinstance(refusal, Refusal)
    assert (refusal.id, refusal.code) == ("0", "BAD_REQUEST")


@pytest.mark.parametrize("line", [b"V1|7|PRODUCE|orders k:\xff", b"V1|7|\xc3|x"])
def test_invalid_utf8_is_refused_under_its_id(line: bytes) -> None:
    assert parse_request(line) == Refusal("7", "BAD_REQUEST", "the line is not valid UTF-8")


def test_replies_are_one_line_each() -> None:
    assert format_ok("7") == b"V1|7|OK\n"
    assert format_ok("7", "offset=0") == b"V1|7|OK|offset=0\n"
    refusal = Refusal("7", "NOT_LEADER", "a\nb\rc\x85d\ud800")
    assert refusal.format() == b"V1|7|ERR|NOT_LEADER|a b c d\\ud800\n"


def test_lines_end_with_lf_or_crlf_wherever_they_are_cut() -> None:
    stream = b"one\ntwo\r\n\r\n\nthr\ree\r\r\n"
    for cut in range(len(stream)):
        buffer = LineBuffer()
        buffer.feed(stream[:cut])
        found = take_all(buffer)
        buffer.feed(stream[cut:])
        assert found + take_all(buffer) == [b"one", b"two", b"", b"", b"thr\ree\r"]
        assert not buffer.is_inside_line


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_the_longest_line_passes_and_one_byte_more_does_not(end: bytes) -> None:
    buffer = LineBuffer(8)
    buffer.feed(b"12345678" + end + b"123456789" + end + b"next" + end)
    assert take_all(buffer) == [b"12345678", TooLong(b"123456789"), b"next"]


def test_a_line_without_end_is_told_once_and_not_kept() -> None:
    buffer = LineBuffer()
    piece = b"V1|9|PRODUCE|orders k:" + b"x" * 100_000
    told: list[bytes | TooLong] = []
    for _ in range(50):
        buffer.feed(piece)
        told += take_all(buffer)
        assert buffer.held_bytes <= MAX_LINE_BYTES + len(piece)
    buffer.feed(b"tail\nV1|10|X|\n")
    told += take_all(buffer)
    assert len(told) == 2
    assert isinstance(told[0], TooLong)
    assert refuse_too_long(told[0], MAX_LINE_BYTES).id == "9"
    assert told[1] == b"V1|10|X|"


def test_a_long_line_without_an_id_is_answered_with_id_0() -> None:
    assert refuse_too_long(TooLong(b"x" * 144), 10).id == "0"
    assert refuse_too_long(TooLong(b"V1|" + b"x" * 141), 10).id == "0"


def test_a_value_is_encoded_so_that_a_list_of_messages_can_be_parsed() -> None:
    assert encode_value("a,b%c") == "a%2Cb%25c"
    assert encode_value("\x00\n\r\t\x1f\x7f\x85") == "%00%0A%0D%09%1F%7F%C2%85"
    assert encode_value("space:colon|ü😀") == "space:colon|ü😀"
