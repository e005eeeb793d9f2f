"""One number for how hard delivery works."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.engine.delivery.governor import (
    COALESCE_ABOVE,
    COALESCE_MAX_S,
    COALESCE_MIN_S,
    DEPTH_FULL,
    LATENCY_FULL_MS,
    LATENCY_GOAL_MS,
    Governor,
    plan_pressure,
)


@given(st.integers(0, 10**6), st.floats(0, 1e6), st.floats(0, 10))
def test_the_pressure_is_between_nothing_and_all(
    depth: int, latency_ms: float, busy_share: float
) -> None:
    pressure = plan_pressure(depth=depth, latency_ms=latency_ms, busy_share=busy_share)
    assert 0.0 <= pressure <= 1.0


def test_a_server_that_keeps_its_goal_has_no_pressure() -> None:
    assert plan_pressure(depth=0, latency_ms=LATENCY_GOAL_MS, busy_share=0.0) == 0.0
    full = plan_pressure(depth=DEPTH_FULL, latency_ms=LATENCY_FULL_MS, busy_share=1.0)
    assert full == pytest.approx(1.0)


def feed(governor: Governor, level: float, times: int = 20) -> None:
    for _ in range(times):
        governor.sample(
            depth=round(level * DEPTH_FULL),
            latency_ms=LATENCY_GOAL_MS + level * (LATENCY_FULL_MS - LATENCY_GOAL_MS),
            busy_share=level,
        )


def test_the_lowest_band_pauses_above_and_resumes_well_below() -> None:
    governor = Governor()
    paused = []
    for level in (0.75, 0.9, 0.7, 0.5, 0.7):
        feed(governor, level)
        paused.append(governor.paused)
    assert paused == [False, True, True, False, False]


def test_frames_wait_for_company_only_under_pressure() -> None:
    governor = Governor()
    feed(governor, COALESCE_ABOVE - 0.01)
    assert governor.coalesce_s == 0.0
    feed(governor, COALESCE_ABOVE + 0.05)
    assert COALESCE_MIN_S <= governor.coalesce_s < COALESCE_MAX_S
    feed(governor, 1.0)
    assert governor.coalesce_s == pytest.approx(COALESCE_MAX_S, rel=0.01)


def test_one_bad_sample_does_not_pause_anybody() -> None:
    governor = Governor()
    feed(governor, 0.0)
    feed(governor, 1.0, times=1)
    assert not governor.paused
