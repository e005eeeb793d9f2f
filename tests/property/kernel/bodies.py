"""Request bodies spelled in many ways, with what they mean; and an oracle for strict JSON."""

import json
import re
from typing import Any, NamedTuple, NoReturn

from hypothesis.strategies import (
    DrawFn,
    booleans,
    composite,
    dictionaries,
    floats,
    integers,
    lists,
    none,
    permutations,
    recursive,
    sampled_from,
    text,
)
from tests.property.kernel.frames import Record

from topics.kernel.refusals import ENVELOPE_FIELDS

LIMITS: dict[str, Any] = {
    "max_records": 50,
    "max_record_bytes": 4096,
    "max_meta_bytes": 512,
    "max_tag_bytes": 64,
    "max_node_bytes": 48,
}

WIDE_LIMITS = {**LIMITS, "max_record_bytes": 1 << 20, "max_meta_bytes": 1 << 20}

scalars = none() | booleans() | integers() | floats(allow_nan=False, allow_infinity=False) | text()
values = recursive(
    scalars, lambda inner: lists(inner, max_size=4) | dictionaries(text(), inner, max_size=4)
)
spellings = sampled_from(
    [
        "-0", "1E400", "-1.50e-07", "9" * 5000, '"\\ud800"', '"\\/\\u00E9\\t"', "[ ]", "{ }",
        '"\x7f\U0010ffff"', '{"a":1,"a":2}', "[[[[[[1]]]]]]", '[{"a":[{"b":{}}]}]',
    ]
)  # fmt: skip
spaces = sampled_from(["", "", "", " ", "\n", "\t\r\n "])
short_text = text(max_size=10)


class Body(NamedTuple):
    """A body, and what a reader has to find in it."""

    raw: bytes
    records: list[Record]
    envelope: dict[str, bytes]


@composite
def raw_json(draw: DrawFn) -> str:
    if draw(booleans()):
        return draw(spellings)
    return json.dumps(draw(values), ensure_ascii=draw(booleans()), indent=draw(none() | just_two))


just_two = sampled_from([2])


@composite
def quoted(draw: DrawFn, value: str) -> str:
    """Spell a string plainly, with escapes outside ASCII, or with nothing but escapes."""
    way = draw(integers(0, 2))
    if way < 2:
        return json.dumps(value, ensure_ascii=bool(way))
    units = value.encode("utf-16-be")
    codes = [units[i : i + 2].hex() for i in range(0, len(units), 2)]
    return '"' + "".join(f"\\u{code}" for code in codes) + '"'


@composite
def spelled_object(draw: DrawFn, members: list[tuple[str, str]]) -> str:
    parts = [
        draw(spaces) + draw(quoted(key)) + draw(spaces) + ":" + draw(spaces) + value + draw(spaces)
        for key, value in members
    ]
    return "{" + (",".join(parts) or draw(spaces)) + "}"


@composite
def spelled_record(draw: DrawFn) -> tuple[str, Record]:
    data = draw(raw_json())
    tag, node = draw(none() | short_text), draw(none() | short_text)
    meta = draw(none() | dictionaries(short_text, scalars, max_size=3))
    members = [("data", data)]
    if tag is not None:
        members.append(("tag", draw(quoted(tag))))
    if node is not None:
        members.append(("node", draw(quoted(node))))
    raw_meta = None if meta is None else json.dumps(meta)
    if raw_meta is not None:
        members.append(("meta", raw_meta))
    absent = {"tag", "node", "meta"} - {key for key, _ in members}
    members += [(key, "null") for key in sorted(absent) if draw(booleans())]
    members += [("key", draw(raw_json()))] * draw(integers(0, 1))
    spelled = draw(spelled_object(draw(permutations(members))))
    tag_bytes, node_bytes, meta_bytes = (
        None if part is None else part.encode() for part in (tag, node, raw_meta)
    )
    record = Record(data.encode(), tag_bytes, node_bytes, meta_bytes)
    return spelled, record


@composite
def bodies(draw: DrawFn) -> Body:
    spelled = draw(lists(spelled_record(), min_size=1, max_size=4))
    array = ",".join(draw(spaces) + raw + draw(spaces) for raw, _ in spelled)
    default = draw(none() | short_text)
    others = draw(dictionaries(sampled_from(ENVELOPE_FIELDS), raw_json(), max_size=2))
    envelope = {key: raw.encode() for key, raw in others.items()}
    members = [("records", f"[{array}]")] + [(key, raw.decode()) for key, raw in envelope.items()]
    if default is not None:
        members.append(("node", draw(quoted(default))))
    raw = draw(spaces) + draw(spelled_object(draw(permutations(members)))) + draw(spaces)
    node = None if default is None else default.encode()
    records = [r if r.node is not None else r._replace(node=node) for _, r in spelled]
    return Body(raw.encode(), records, envelope)


def parse_strictly(body: bytes) -> Any:  # noqa: ANN401
    """Decode as RFC 8259 says, with the json module; ValueError for anything else."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(constant)

    decoded = json.loads(body.decode(), parse_constant=refuse, parse_int=str, parse_float=str)
    if json_depth(body) > 256:
        raise ValueError("too deep")
    return decoded


def json_depth(body: bytes) -> int:
    """Count the deepest nesting of a body that is known to be JSON."""
    depth = deepest = 0
    for byte in re.sub(rb'"(?:[^"\\]|\\.)*"', b"", body):
        depth += (byte in b"[{") - (byte in b"]}")
        deepest = max(deepest, depth)
    return deepest
