"""Who should own which partition."""

import pytest

from topics.engine.groups.assign import Assignment, Partition, assign


def spread(target: Assignment) -> dict[str, list[Partition]]:
    shares: dict[str, list[Partition]] = {}
    for partition, member in sorted(target.items()):
        shares.setdefault(member, []).append(partition)
    return shares


def test_range_cuts_each_topic_into_one_piece_a_member() -> None:
    target = assign("range", {"b": ["t"], "a": ["t"]}, {"t": 5}, {})
    assert spread(target) == {
        "a": [Partition("t", n) for n in (0, 1, 2)],
        "b": [Partition("t", n) for n in (3, 4)],
    }


def test_round_robin_deals_over_all_topics() -> None:
    target = assign("round_robin", {"a": ["t", "u"], "b": ["t", "u"]}, {"t": 3, "u": 1}, {})
    assert spread(target) == {
        "a": [Partition("t", 0), Partition("t", 2)],
        "b": [Partition("t", 1), Partition("u", 0)],
    }


def test_round_robin_passes_over_whoever_does_not_subscribe() -> None:
    target = assign("round_robin", {"a": ["t"], "b": ["u"]}, {"t": 2, "u": 2}, {})
    assert {member for p, member in target.items() if p.topic == "t"} == {"a"}
    assert {member for p, member in target.items() if p.topic == "u"} == {"b"}


def test_sticky_moves_only_what_makes_it_even() -> None:
    owners = {Partition("t", n): "a" for n in range(4)}
    target = assign("sticky", {"a": ["t"], "b": ["t"]}, {"t": 4}, owners)
    moved = [p for p in owners if target[p] != owners[p]]
    assert len(moved) == 2
    again = assign("sticky", {"a": ["t"], "b": ["t"]}, {"t": 4}, target)
    assert again == target


def test_sticky_gives_orphans_to_whoever_has_the_least() -> None:
    owners = {Partition("t", 0): "a", Partition("t", 1): "a", Partition("t", 2): "gone"}
    target = assign("sticky", {"a": ["t"], "b": ["t"]}, {"t": 3}, owners)
    assert target[Partition("t", 2)] == "b"
    assert target[Partition("t", 0)] == target[Partition("t", 1)] == "a"


@pytest.mark.parametrize("assignor", ["range", "round_robin", "sticky"])
def test_a_topic_without_subscribers_or_partitions_is_nobodys(assignor: str) -> None:
    assert assign(assignor, {"a": ["t"]}, {"t": 0, "u": 3}, {}) == {}
    assert assign(assignor, {}, {"u": 3}, {Partition("u", 0): "a"}) == {}


def test_sticky_is_quick_enough_to_be_asked_under_a_lock() -> None:
    members = {f"m{n:03}": ["t", "u"] for n in range(100)}
    target = assign("sticky", members, {"t": 1024, "u": 1024}, {})
    one_more = assign("sticky", {**members, "new": ["t", "u"]}, {"t": 1024, "u": 1024}, target)
    moved = sum(one_more[p] != target[p] for p in target)
    assert moved == 2048 // 101
