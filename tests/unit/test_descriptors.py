"""Who gets the descriptors of a process, and who goes when they are all in use."""

import resource

import pytest

from topics.descriptors import (
    DEFAULT_CONNECTIONS,
    MAPS_MAX,
    Crowd,
    plan_backlog,
    plan_connections,
    plan_maps,
    raise_limit,
)


class Guest:
    """A connection from somewhere, at rest since some time."""

    def __init__(
        self, room: set["Guest"], peer: str, since_s: float, *, is_at_rest: bool = True
    ) -> None:
        self.peer = peer
        self.since_s = since_s
        self.is_at_rest = is_at_rest
        self.has_ended = False
        room.add(self)

    def end(self) -> None:
        self.has_ended = True


def crowd_of(room: set[Guest], most: int) -> Crowd:
    crowd = Crowd(most)
    crowd.add(room)
    return crowd


@pytest.mark.parametrize("limit", [64, 256, 1024, 4096, 20_000, 65_536, 1 << 20])
@pytest.mark.parametrize("wanted", [0, 10, 1 << 30])
def test_connections_leave_the_log_what_it_needs(limit: int, wanted: int) -> None:
    most = plan_connections(limit, shards=2, wanted=wanted)
    assert 0 < most <= (wanted or DEFAULT_CONNECTIONS)
    assert most < limit
    if limit >= 256:  # with fewer there is not even enough for the log
        assert most + plan_maps(limit) + 2 * plan_backlog(limit) + 48 <= limit


def test_the_default_is_reached_where_there_are_many_descriptors() -> None:
    assert plan_connections(1 << 20, shards=8) == DEFAULT_CONNECTIONS
    assert plan_maps(1 << 20) == MAPS_MAX
    assert plan_connections(1024, shards=2) == 576


def test_the_limit_is_raised_to_what_the_system_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard) - 1, hard))
    try:
        assert raise_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert raise_limit() == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_who_has_been_at_rest_for_longest_makes_place() -> None:
    room: set[Guest] = set()
    old, new = Guest(room, "a", 1.0), Guest(room, "a", 2.0)
    busy = Guest(room, "a", 0.5, is_at_rest=False)
    crowd = crowd_of(room, 3)
    assert crowd.is_full
    assert crowd.let_in("a")
    assert (old.has_ended, new.has_ended, busy.has_ended) == (True, False, False)
    assert (crowd.ended, crowd.refused) == (1, 0)


def test_a_place_is_given_once() -> None:
    room: set[Guest] = set()
    guests = [Guest(room, "a", at) for at in range(2)]
    crowd = crowd_of(room, 2)
    assert crowd.let_in("a")
    Guest(room, "a", 9.0, is_at_rest=False)  # the first to go has not hung up yet
    assert crowd.let_in("a")
    Guest(room, "a", 9.0, is_at_rest=False)
    assert all(guest.has_ended for guest in guests)
    assert not crowd.let_in("a")
    room.difference_update(guests)
    assert not crowd.let_in("a")
    assert (crowd.ended, crowd.refused) == (2, 2)


def test_nobody_loses_his_place_to_an_address_that_has_more() -> None:
    room: set[Guest] = set()
    greedy = [Guest(room, "greedy", 5.0 + at, is_at_rest=at > 2) for at in range(6)]
    modest = Guest(room, "modest", 0.0)
    crowd = crowd_of(room, 7)
    assert crowd.let_in("greedy")
    assert [guest.has_ended for guest in greedy] == [False] * 3 + [True] + [False] * 2
    for guest in greedy:
        guest.is_at_rest = False
    crowd = crowd_of(room, 7)
    assert not crowd.let_in("greedy")
    assert not modest.has_ended
    greedy[5].is_at_rest = True
    assert crowd_of(room, 7).let_in("new")
    assert greedy[5].has_ended
    assert not modest.has_ended
    greedy[5].is_at_rest = False
    assert crowd_of(room, 7).let_in("modest")  # his own
    assert modest.has_ended


def test_so_many_go_at_once_that_few_look_at_all() -> None:
    room: set[Guest] = set()
    guests = [Guest(room, "a", at) for at in range(1000)]
    crowd = crowd_of(room, 1000)
    assert crowd.let_in("a")
    assert crowd.ended == 11
    assert [guest.since_s for guest in guests if guest.has_ended] == list(range(11))


def test_what_is_never_at_rest_counts_too() -> None:
    crowd = crowd_of(set(), 3)
    crowd.add_others(lambda: 3)
    assert len(crowd) == 3
    assert not crowd.let_in("a")
