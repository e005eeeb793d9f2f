"""The edges of JSON strings and numbers, tried one by one instead of by chance."""

import json
from itertools import product
from types import ModuleType

import pytest

from topics.errors import RequestError

LIMITS = {
    "max_records": 1,
    "max_record_bytes": 1000,
    "max_meta_bytes": 20,
    "max_tag_bytes": 12,
    "max_node_bytes": 12,
}


def accepts(twin: ModuleType, data: bytes, tag: bytes | None = None) -> bool:
    """Try `data` close to the end of the body, where a scan in wide steps has to slow down."""
    tagged = b"" if tag is None else b'"tag":' + tag + b","
    try:
        twin.parse_batch(b'{"records":[{' + tagged + b'"data":' + data + b"}]}", **LIMITS)
    except RequestError:
        return False
    return True


def json_accepts(data: bytes) -> bool:
    try:
        json.loads(data.decode(), parse_int=str)
    except ValueError:
        return False
    return True


def test_every_byte_in_a_string_is_judged_as_the_json_module_does_wherever_it_stands(
    twin: ModuleType,
) -> None:
    for byte, before, after in product(range(256), (0, 1, 7, 14, 15, 16, 31), (0, 17)):
        data = b'"' + b"x" * before + bytes([byte]) + b"y" * after + b'"'
        assert accepts(twin, data) is json_accepts(data), data


def test_every_byte_behind_a_backslash_is_judged_as_the_json_module_does(
    twin: ModuleType,
) -> None:
    for byte in range(256):
        data = b'"\\' + bytes([byte]) + b'"'
        assert accepts(twin, data) is json_accepts(data), data


def test_every_byte_among_hex_digits_is_judged_as_the_json_module_does(twin: ModuleType) -> None:
    for byte, at in product(range(256), range(4)):
        digits = bytearray(b"00a9")
        digits[at] = byte
        data = b'"\\u' + digits + b'"'
        assert accepts(twin, data) is json_accepts(data), data


def test_utf8_is_taken_in_its_shortest_form_without_surrogates_up_to_the_last_code_point(
    twin: ModuleType,
) -> None:
    edges = bytes([0x22, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0])
    tails: list[tuple[int, ...]] = [()]
    for size in (1, 2, 3):
        tails += product(edges, *[(0x7F, 0x80, 0xBF, 0xC0)] * (size - 1))
    for lead, tail in product(range(0x80, 0x100), tails):
        data = b'"' + bytes([lead, *tail]) + b'"'
        assert accepts(twin, data) is json_accepts(data), data


def test_code_points_at_every_edge_come_back_from_escapes_as_utf8(twin: ModuleType) -> None:
    edges = (0, 0x1F, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF)
    for code in edges:
        text = chr(code) + "x"
        units = text.encode("utf-16-be")
        escaped = "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
        body = f'{{"records":[{{"data":0,"tag":"{escaped}"}}]}}'.encode()
        assert twin.parse_batch(body, **LIMITS).frames[38:-9] == text.encode()


def test_only_a_high_and_a_low_surrogate_make_a_character(twin: ModuleType) -> None:
    edges = (0xD7FF, 0xD800, 0xDBFF, 0xDC00, 0xDFFF, 0xE000)
    for first, second in product(edges, edges):
        token = f'"\\u{first:04x}\\u{second:04X}"'
        try:
            json.loads(token).encode()
            whole = True
        except UnicodeEncodeError:
            whole = False
        assert accepts(twin, b"0", token.encode()) is whole, token
        assert accepts(twin, token.encode())


@pytest.mark.parametrize(
    ("field", "exact"),
    [
        ("tag", '"123456789012"'),
        ("tag", '"éééééé"'),
        ("tag", '"\\u00e9ééééé"'),
        ("node", '"123456789012"'),
        ("meta", '{"a":"123456789012"}'),
        ("data", '"' + "x" * 998 + '"'),
    ],
)
def test_a_field_may_be_as_long_as_its_limit_and_no_longer(
    twin: ModuleType, field: str, exact: str
) -> None:
    def body(value: str) -> bytes:
        return f'{{"records":[{{"data":0,"{field}":{value}}}]}}'.encode()

    assert twin.parse_batch(body(exact), **LIMITS).count == 1
    longer = exact.replace('"}', 'x"}') if field == "meta" else exact[:-1] + 'x"'
    with pytest.raises(RequestError, match=r"longer than \d+ bytes"):
        twin.parse_batch(body(longer), **LIMITS)


def test_the_node_of_the_batch_may_be_as_long_as_its_limit_and_no_longer(
    twin: ModuleType,
) -> None:
    body = b'{"records":[{"data":0}],"node":"%s"}'
    assert twin.parse_batch(body % (b"n" * 12), **LIMITS).count == 1
    with pytest.raises(RequestError, match="'node' is longer than 12 bytes"):
        twin.parse_batch(body % (b"n" * 13), **LIMITS)


def test_numbers_follow_the_grammar_to_the_letter(twin: ModuleType) -> None:
    pieces = ("", "-", "+", "0", "1", "12", ".", "e", "E", " ")
    for parts in product(pieces, repeat=4):
        data = "".join(parts).encode()
        assert accepts(twin, data) is json_accepts(data), data
