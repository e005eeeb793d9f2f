"""ManualClock."""

import pytest

from topics.clock import Clock
from topics.testing.manual_clock import ManualClock


def time_of(clock: Clock) -> tuple[int, float]:
    return clock.now_ms(), clock.monotonic_s()


def test_both_clocks_move_only_when_told() -> None:
    clock = ManualClock(now_ms=1000)
    assert time_of(clock) == (1000, 0.0)
    clock.advance_ms(250)
    assert time_of(clock) == (1250, 0.25)


def test_the_wall_clock_may_step_back_while_the_other_goes_on() -> None:
    clock = ManualClock(now_ms=1000)
    clock.advance_ms(500)
    clock.set_ms(10)
    assert time_of(clock) == (10, 0.5)


def test_a_sleep_takes_no_time_but_moves_both_clocks() -> None:
    clock = ManualClock(now_ms=1000)
    clock.sleep(0.0005)
    clock.sleep(0.0005)
    clock.sleep(1.999)
    assert time_of(clock) == (3000, 2.0)


def test_time_cannot_be_advanced_backwards() -> None:
    with pytest.raises(AssertionError, match="backwards"):
        ManualClock().advance_ms(-1)
