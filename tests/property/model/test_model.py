"""Topic configs and matches: what merges into what, and what is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.errors import RequestError, TopicExistsIncompatible
from topics.model.diff import parse_match
from topics.model.topic_config import TopicConfig

AMOUNTS = st.integers(0, 2**63 - 1)
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(("log", "queue")),
        "ttl_ms": AMOUNTS,
        "cap_records": AMOUNTS,
        "cap_bytes": AMOUNTS,
        "discard": st.sampled_from(("old", "reject")),
        "durability": st.sampled_from(("ephemeral", "memory", "disk", "fsync")),
        "durable": st.booleans(),
        "priority": st.none() | st.integers(-5_000, 5_000),
        "auto_priority": st.booleans(),
        "auto_create": st.booleans(),
        "idempotency_window_ms": AMOUNTS,
        "producer_expiry_ms": AMOUNTS,
        "dedupe_node": st.booleans(),
        "lease_ms": st.integers(-10, 10**9),
        "claim_jitter_ms": st.integers(-10, 10_000),
        "max_deliveries": AMOUNTS,
        "dead_letter": st.none() | st.just("dead"),
        "leases_durable": st.booleans(),
    },
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def test_every_field_is_tried_here() -> None:
    config = TopicConfig()
    assert len(config.as_dict()) == 18


@given(changes=CHANGES)
def test_a_config_is_whole_resolved_and_clamped(changes: dict[str, Any]) -> None:
    config = TopicConfig.from_changes(changes)
    assert config.durable == (config.durability == "fsync")
    assert config.persists == (config.durability != "ephemeral")
    assert config.priority is None or -1_000 <= config.priority <= 1_000
    assert 100 <= config.lease_ms <= 86_400_000
    assert 0 <= config.claim_jitter_ms <= 5_000


@given(changes=CHANGES)
def test_an_explicit_durability_wins_over_durable(changes: dict[str, Any]) -> None:
    config = TopicConfig.from_changes(changes)
    if "durability" in changes:
        assert config.durability == changes["durability"]
    elif "durable" in changes:
        assert config.durability == ("fsync" if changes["durable"] else "disk")
    else:
        assert config.durability == "disk"


@given(first=CHANGES, second=CHANGES)
def test_merging_changes_only_what_is_named(first: dict[str, Any], second: dict[str, Any]) -> None:
    before = TopicConfig.from_changes(first)
    after = before.merged(second)
    untouched = set(before.as_dict()) - set(second)
    if {"durable", "durability"} & set(second):
        untouched -= {"durable", "durability"}
    assert all(getattr(before, name) == getattr(after, name) for name in untouched)
    assert after.merged({}) == after
    assert after.merged(second) == after


@given(changes=CHANGES)
def test_a_config_that_was_reported_can_be_sent_back(changes: dict[str, Any]) -> None:
    config = TopicConfig.from_changes(changes)
    assert TopicConfig.from_changes(config.as_dict()) == config


@given(kind=st.sampled_from(("log", "queue")), wanted=st.sampled_from(("log", "queue", None)))
def test_only_the_type_cannot_change(kind: str, wanted: str | None) -> None:
    config = TopicConfig.from_changes({"type": kind})
    changes = {} if wanted is None else {"type": wanted}
    if wanted in (None, kind):
        config.check_same_type(changes, topic="a")
    else:
        with pytest.raises(TopicExistsIncompatible):
            config.check_same_type(changes, topic="a")


@given(name=st.sampled_from(("ttl_ms", "cap_records", "cap_bytes", "max_deliveries")))
def test_a_negative_amount_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match=name):
        TopicConfig.from_changes({name: -1})


# Matches.


@given(literal=TEXTS)
def test_a_tag_alone_is_an_exact_match(literal: str) -> None:
    assert parse_match(literal) == ("Eq", literal)
    assert parse_match(["tag", "Eq", literal]) == ("Eq", literal)
    assert parse_match(("tag", "Eq", literal)) == ("Eq", literal)


@given(literal=TEXTS)
def test_a_glob_is_a_prefix_and_one_star_at_its_end(literal: str) -> None:
    if "*" in literal:
        with pytest.raises(RequestError, match="one trailing star"):
            parse_match(["tag", "Glob", literal + "*"])
    else:
        assert parse_match(["tag", "Glob", literal + "*"]) == ("Glob", literal)
        with pytest.raises(RequestError, match="one trailing star"):
            parse_match(["tag", "Glob", literal])


@given(
    value=st.one_of(
        st.none(),
        st.integers(),
        st.lists(TEXTS, max_size=2),
        st.lists(TEXTS, min_size=4, max_size=5),
        st.tuples(st.just("tag"), st.just("Eq"), st.integers()),
        st.tuples(st.just("node"), st.just("Eq"), TEXTS),
        st.tuples(st.just("tag"), st.just("Like"), TEXTS),
        st.dictionaries(TEXTS, TEXTS, max_size=2),
        st.binary(),
    )
)
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(RequestError, match="match"):
        parse_match(value)
