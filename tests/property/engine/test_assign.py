"""Assignors against the rules, and the sticky one against all answers there are."""

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from topics.engine.groups.assign import Assignment, Partition, assign

MEMBERS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=5, unique=True)
TOPICS = ("t", "u", "v")


@st.composite
def questions(
    draw: st.DrawFn,
) -> tuple[dict[str, list[str]], dict[str, int], Assignment]:
    members = draw(MEMBERS)
    wanted = st.lists(st.sampled_from(TOPICS), min_size=1, unique=True)
    subscriptions = {member: draw(wanted) for member in members}
    counts = {topic: draw(st.integers(0, 6)) for topic in TOPICS}
    partitions = [Partition(topic, n) for topic in TOPICS for n in range(8)]
    held = draw(st.lists(st.sampled_from(partitions), unique=True))
    owners = {p: draw(st.sampled_from([*members, "gone"])) for p in held}
    return subscriptions, counts, owners


@given(questions(), st.sampled_from(["range", "round_robin", "sticky"]))
def test_every_partition_with_a_subscriber_has_one_owner_who_subscribes(
    question: tuple[dict[str, list[str]], dict[str, int], Assignment], assignor: str
) -> None:
    subscriptions, counts, owners = question
    target = assign(assignor, subscriptions, counts, owners)
    wanted = {
        Partition(topic, n)
        for topic, count in counts.items()
        for n in range(count)
        if any(topic in topics for topics in subscriptions.values())
    }
    assert set(target) == wanted
    assert all(p.topic in subscriptions[member] for p, member in target.items())
    shuffled = dict(reversed(subscriptions.items()))
    assert assign(assignor, shuffled, counts, owners) == target


@given(questions())
def test_no_single_move_makes_a_sticky_answer_more_even(
    question: tuple[dict[str, list[str]], dict[str, int], Assignment],
) -> None:
    subscriptions, counts, owners = question
    target = assign("sticky", subscriptions, counts, owners)
    loads = Counter(target.values())
    for partition, giver in target.items():
        for taker, topics in subscriptions.items():
            if partition.topic in topics:
                assert loads[giver] - loads[taker] < 2
    assert assign("sticky", subscriptions, counts, target) == target


@given(
    st.lists(st.sampled_from("abc"), min_size=1, unique=True),
    st.lists(st.sampled_from(["a", "b", "c", "gone", None]), max_size=6),
)
def test_a_sticky_answer_is_even_with_the_fewest_moves_of_all_answers(
    members: list[str], held: list[str | None]
) -> None:
    owners = {Partition("t", n): owner for n, owner in enumerate(held) if owner is not None}
    subscriptions = {member: ["t"] for member in members}
    target = assign("sticky", subscriptions, {"t": len(held)}, owners)

    def moves(answer: Assignment) -> int:
        return sum(answer[p] != owner for p, owner in owners.items() if owner in members)

    def is_even(answer: Assignment) -> bool:
        loads = [list(answer.values()).count(member) for member in members]
        return max(loads) - min(loads) <= 1

    assert is_even(target)
    answers = (
        {Partition("t", n): member for n, member in enumerate(answer)}
        for answer in product(members, repeat=len(held))
    )
    assert moves(target) == min(moves(answer) for answer in answers if is_even(answer))
