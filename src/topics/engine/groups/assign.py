"""Who should own which partition: pure, and the same for the same question.

Keeps: every partition with a subscriber has exactly one owner, who subscribes to its topic.
`sticky` moves as little as it can: what is held stays, what nobody holds goes to whoever has the
least, and only then the one with the most gives to the one with the least, while they differ by two
or more.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from heapq import heapify, heapreplace
from itertools import cycle
from typing import NamedTuple


class Partition(NamedTuple):
    """One partition, by the topic's name as the group knows it."""

    topic: str
    number: int


Subscriptions = Mapping[str, Collection[str]]
"""Member → topics."""
Counts = Mapping[str, int]
"""Topic → how many partitions."""
Owners = Mapping[Partition, str]
Assignment = dict[Partition, str]


def assign(
    assignor: str, subscriptions: Subscriptions, counts: Counts, owners: Owners
) -> Assignment:
    """Return the owner that each partition should have."""
    return _ASSIGNORS[assignor](subscriptions, counts, owners)


def assign_range(subscriptions: Subscriptions, counts: Counts, owners: Owners) -> Assignment:
    """Cut each topic into one piece a member, in the order of their names."""
    del owners
    target: Assignment = {}
    for topic, members in _subscribers(subscriptions, counts).items():
        size, longer = divmod(counts[topic], len(members))
        start = 0
        for place, member in enumerate(members):
            stop = start + size + (place < longer)
            target.update({Partition(topic, n): member for n in range(start, stop)})
            start = stop
    return target


def assign_round_robin(subscriptions: Subscriptions, counts: Counts, owners: Owners) -> Assignment:
    """Deal all partitions to the members in turn; whoever does not subscribe is passed over."""
    del owners
    target: Assignment = {}
    turns = cycle(sorted(subscriptions))
    for topic, members in _subscribers(subscriptions, counts).items():
        for number in range(counts[topic]):
            target[Partition(topic, number)] = next(m for m in turns if m in members)
    return target


def assign_sticky(subscriptions: Subscriptions, counts: Counts, owners: Owners) -> Assignment:
    """Keep what is held, and move as little as makes it even."""
    subscribers = _subscribers(subscriptions, counts)
    shares = {member: _Share() for member in sorted(subscriptions)}
    for topic, members in subscribers.items():
        for number in range(counts[topic]):
            owner = owners.get(Partition(topic, number))
            if owner is not None and owner in members:
                shares[owner].add(topic, number)
    for topic, members in subscribers.items():
        by_load = [(shares[member].load, member) for member in members]
        heapify(by_load)
        for number in range(counts[topic]):
            if owners.get(Partition(topic, number)) not in members:
                load, least = by_load[0]
                shares[least].add(topic, number)
                heapreplace(by_load, (load + 1, least))
    _even_out(subscriptions, shares)
    return {p: member for member, share in shares.items() for p in share.partitions()}


class _Share:
    """What one member has, by topic."""

    def __init__(self) -> None:
        self.load = 0
        self._numbers: dict[str, list[int]] = defaultdict(list)

    def add(self, topic: str, number: int) -> None:
        self._numbers[topic].append(number)
        self.load += 1

    def give(self, taker: "_Share", topics: Collection[str]) -> bool:
        """Give one partition of these topics, out of the topic with the most; tell whether."""
        shared = [(len(n), topic) for topic, n in self._numbers.items() if n and topic in topics]
        if not shared:
            return False
        topic = max(shared)[1]
        taker.add(topic, self._numbers[topic].pop())
        self.load -= 1
        return True

    def partitions(self) -> list[Partition]:
        return [Partition(topic, n) for topic, numbers in self._numbers.items() for n in numbers]


def _even_out(subscriptions: Subscriptions, shares: Mapping[str, _Share]) -> None:
    while _move_one(subscriptions, shares):
        pass


def _move_one(subscriptions: Subscriptions, shares: Mapping[str, _Share]) -> bool:
    """Move a partition from the fullest to the emptiest that may have it; False when even."""
    by_load = sorted(shares, key=lambda member: (shares[member].load, member))
    for giver in reversed(by_load):
        for taker in by_load:
            if shares[giver].load - shares[taker].load < 2:
                break
            if shares[giver].give(shares[taker], subscriptions[taker]):
                return True
    return False


def _subscribers(subscriptions: Subscriptions, counts: Counts) -> dict[str, dict[str, None]]:
    """Return the members of each topic that has any, both in the order of their names."""
    members: dict[str, dict[str, None]] = defaultdict(dict)
    for member in sorted(subscriptions):
        for topic in set(subscriptions[member]):
            if counts.get(topic):
                members[topic][member] = None
    return {topic: members[topic] for topic in sorted(members)}


_ASSIGNORS: Mapping[str, Callable[[Subscriptions, Counts, Owners], Assignment]] = {
    "range": assign_range,
    "round_robin": assign_round_robin,
    "sticky": assign_sticky,
}
