"""Hypothesis strategies for what a caller may say: records, configs, matches, names."""

from typing import Any

from hypothesis import strategies as st

from topics.testing.oracle import OracleRecord

DURABILITIES = ("ephemeral", "memory", "disk", "fsync")
TAGS = ("", "a", "a:1", "a:12", "b", "b:1", "ä", "ä:1")
NODES = ("n1", "n2", "ñ")
RAW_DATA = (
    b"null",
    b"1",
    b"1.0",
    b"1e2",
    b"-0",
    b'""',
    b"[ ]",
    b'{"b" : 1, "a":2}',
    b'"\\u00e9"',
    b'"\xc3\xa9 \\/"',
    b"123456789012345678901234567890",
    b'{"id":1,"id":2}',
    b'"' + b"x" * 200 + b'"',
)  # fmt: skip - one screen
RAW_META = (b"{}", b'{"a": 1}', b'{ "k" : [1 , 2.50] }')


def topic_names() -> st.SearchStrategy[str]:
    return st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}", fullmatch=True)


def raw_json() -> st.SearchStrategy[bytes]:
    return st.sampled_from(RAW_DATA)


def records() -> st.SearchStrategy[OracleRecord]:
    """One record as a writer gives it, without seq and time."""
    return st.builds(
        OracleRecord,
        data=raw_json(),
        tag=st.none() | st.sampled_from(TAGS),
        node=st.none() | st.sampled_from(NODES),
        meta=st.none() | st.none() | st.sampled_from(RAW_META),
    )


def batches(max_size: int = 6) -> st.SearchStrategy[list[OracleRecord]]:
    return st.lists(records(), min_size=1, max_size=max_size)


def matches() -> st.SearchStrategy[tuple[str, str]]:
    """(op, literal) as `topics.model.diff.parse_match` returns it."""
    return st.tuples(st.sampled_from(("Eq", "Glob")), st.sampled_from((*TAGS, "a:", "none")))


def config_changes() -> st.SearchStrategy[dict[str, Any]]:
    """Fields of a topic config that change what the log means, small enough to bite."""
    return st.fixed_dictionaries(
        {},
        optional={
            "durability": st.sampled_from(DURABILITIES),
            "ttl_ms": st.sampled_from((0, 50, 1_000, 60_000)),
            "cap_records": st.sampled_from((0, 1, 3, 8, 20)),
            "cap_bytes": st.sampled_from((0, 30, 300, 2_000)),
            "discard": st.sampled_from(("old", "old", "reject")),
            "dedupe_node": st.booleans(),
        },
    )
