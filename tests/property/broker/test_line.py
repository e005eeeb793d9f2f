"""Any bytes, cut anywhere, are lines with one answer each."""

from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st

from topics.broker import arguments
from topics.broker.line import (
    LineBuffer,
    Refusal,
    Request,
    TooLong,
    encode_value,
    parse_request,
    refuse_too_long,
)
from topics.errors import RequestError

LIMIT = 24
PARSERS = (
    arguments.parse_produce,
    arguments.parse_consume,
    arguments.parse_join,
    arguments.parse_commit,
    arguments.parse_progress,
    lambda args: arguments.parse_member(args, "SYNC"),
)
LINES = st.lists(st.binary(max_size=3 * LIMIT).map(lambda line: line.replace(b"\n", b"")))
WORDS = st.sampled_from(["orders", "a/b", "-1", "0", "7", "k:v", "acks=1", " ", "", "é", "x:y z"])


@given(LINES, st.lists(st.integers(1, 40)))
def test_cuts_change_nothing(lines: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    buffer = LineBuffer(LIMIT)
    found: list[bytes | TooLong] = []
    for size in [*cuts, len(stream)]:
        buffer.feed(stream[:size])
        stream = stream[size:]
        found += iter(buffer.take, None)
        assert buffer.held_bytes <= LIMIT + 1
    whole = [line.removesuffix(b"\r") for line in lines]
    assert [line if isinstance(line, bytes) else None for line in found] == [
        line if len(line) <= LIMIT else None for line in whole
    ]


@given(st.binary(max_size=300))
def test_every_line_has_an_answer_of_one_line(line: bytes) -> None:
    found = parse_request(line)
    refusal = found if isinstance(found, Refusal) else Refusal(found.id, "BAD_REQUEST", found.args)
    for said in (refusal.format(), refuse_too_long(TooLong(line), LIMIT).format()):
        assert said.startswith(b"V1|")
        assert said.count(b"\n") == 1
        assert said.endswith(b"\n")


@given(
    st.text(
        st.characters(exclude_characters="|", exclude_categories=["Cc", "Cs"]),
        min_size=1,
        max_size=30,
    ),
    st.text(st.characters(exclude_categories=["Cs"])),
)
def test_the_id_and_the_arguments_come_back_as_they_were(request_id: str, args: str) -> None:
    found = parse_request(f"V1|{request_id}|Offset|{args}".encode())
    assert found == Request(request_id, "OFFSET", args)


@given(st.lists(WORDS, max_size=7).map(" ".join) | st.text(max_size=60))
def test_arguments_are_read_or_refused(args: str) -> None:
    for parse in PARSERS:
        try:
            parse(args)
        except RequestError:
            continue


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_value_comes_back_from_a_list_of_messages(value: str) -> None:
    said = encode_value(value)
    assert unquote(said, errors="strict") == value
    assert "," not in said
    assert said.isprintable() or all(ord(c) > 0x9F or c.isprintable() for c in said)
