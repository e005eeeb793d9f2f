"""Tickets open one stream, once, for thirty seconds."""

import pytest

from topics.api import tickets as module
from topics.api.auth import parse_keys
from topics.api.tickets import FORGOTTEN_A_CALL, TICKET_MS, Tickets
from topics.errors import LimitReached, Unauthorized
from topics.testing.manual_clock import ManualClock

CALLER = parse_keys("k:r:a").identify("k")


def test_a_ticket_has_the_rights_of_whoever_asked_once() -> None:
    tickets = Tickets(ManualClock())
    ticket, expires_ms = tickets.give(CALLER)
    assert expires_ms == TICKET_MS == 30_000
    assert tickets.use(ticket) is CALLER
    with pytest.raises(Unauthorized):
        tickets.use(ticket)


def test_a_ticket_is_good_for_thirty_seconds() -> None:
    clock = ManualClock()
    tickets = Tickets(clock)
    early, late = tickets.give(CALLER)[0], tickets.give(CALLER)[0]
    clock.advance_ms(TICKET_MS)
    assert tickets.use(early) is CALLER
    clock.advance_ms(1)
    with pytest.raises(Unauthorized):
        tickets.use(late)


def test_an_unknown_ticket_opens_nothing() -> None:
    with pytest.raises(Unauthorized):
        Tickets(ManualClock()).use("ticket_made-up")


def test_tickets_are_bounded_and_old_ones_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TICKETS", 2)
    clock = ManualClock()
    tickets = Tickets(clock)
    for _ in range(2):
        tickets.give(CALLER)
    with pytest.raises(LimitReached):
        tickets.give(CALLER)
    clock.advance_ms(TICKET_MS + 1)
    assert tickets.use(tickets.give(CALLER)[0]) is CALLER


def test_only_digests_are_kept() -> None:
    tickets = Tickets(ManualClock())
    ticket, _ = tickets.give(CALLER)
    assert ticket not in str(vars(tickets))
    assert len({tickets.give(CALLER)[0] for _ in range(50)}) == 50


def test_one_key_cannot_use_up_the_tickets_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TICKETS_PER_KEY", 2)
    tickets = Tickets(ManualClock())
    other = parse_keys("other").identify("other")
    first, _ = tickets.give(CALLER)
    tickets.give(CALLER)
    with pytest.raises(LimitReached, match="max_tickets_per_key"):
        tickets.give(CALLER)
    assert tickets.use(tickets.give(other)[0]) is other
    tickets.use(first)
    assert tickets.use(tickets.give(CALLER)[0]) is CALLER


def test_a_call_forgets_a_few_old_tickets_and_not_all_at_once() -> None:
    clock = ManualClock()
    tickets = Tickets(clock)
    for _ in range(100):
        tickets.give(CALLER)
    clock.advance_ms(TICKET_MS + 1)
    tickets.give(CALLER)
    assert len(tickets._given) == 100 - FORGOTTEN_A_CALL + 1
    for _ in range(100):
        tickets.give(CALLER)
    assert len(tickets._given) == 101
    assert tickets._counts == {CALLER: 101}
