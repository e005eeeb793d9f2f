"""Limits: the numbers of the wire contract, and names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.errors import RequestError
from topics.limits import Limits, check_router_name, check_topic_name


def test_the_defaults_are_those_of_the_wire_contract() -> None:
    limits = Limits()
    assert limits.max_batch_records == 10_000
    assert limits.max_record_bytes == 1_048_576
    assert limits.max_body_bytes == 67_108_864
    assert limits.max_meta_bytes == 16_384
    assert limits.max_tag_bytes == 256
    assert limits.max_node_bytes == 128
    assert limits.max_limit == 1_000
    assert limits.max_claim == 1_000
    assert limits.max_watch_topics == 256
    assert limits.max_topics == 100_000
    assert limits.max_routers == 10_000
    assert limits.max_watch_sessions == 10_000
    assert limits.max_sse_connections == 10_000
    assert limits.max_sse_connections_per_key == 1_000
    assert limits.max_inflight_per_key == 1_000
    assert limits.max_total_bytes == 0


@pytest.mark.parametrize("name", ["a", "0", "orders", "a.b_c:d-e", "A" * 255])
def test_a_good_name_comes_back(name: str) -> None:
    assert check_topic_name(name) == name
    assert check_router_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".a", "-a", ":a", "_a", "a b", "a/b", "../a", "a\n", "a\0", "ä", "a" * 256, "a*", None, 7],
)
def test_a_bad_name_is_refused(name: object) -> None:
    with pytest.raises(RequestError, match="is not a topic name"):
        check_topic_name(name)
    with pytest.raises(RequestError, match="is not a router name"):
        check_router_name(name)


def test_only_a_router_name_may_hold_an_arrow() -> None:
    assert check_router_name("src->dst") == "src->dst"
    with pytest.raises(RequestError):
        check_topic_name("src->dst")


def test_a_refusal_of_a_huge_name_stays_short() -> None:
    with pytest.raises(RequestError) as refusal:
        check_topic_name("/" * 100_000)
    assert len(str(refusal.value)) < 300


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}", fullmatch=True))
def test_every_name_of_the_pattern_is_good(name: str) -> None:
    assert check_topic_name(name) == name


@given(st.text())
def test_a_name_that_passes_is_plain_ascii_without_a_path(name: str) -> None:
    try:
        check_topic_name(name)
    except RequestError:
        return
    assert name.isascii()
    assert name.isprintable()
    assert "/" not in name
    assert 1 <= len(name) <= 255
