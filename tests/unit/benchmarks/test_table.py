"""The table of `make bench`: what counts as reached, and what fails the run."""

from benchmarks.server.table import (
    Row,
    absent_row,
    all_reached,
    failed_row,
    latency_row,
    rate,
    ratio_row,
    render,
)


def row(ours: float, least: float | None) -> Row:
    return ratio_row("writes", ours=ours, other=100.0, other_name="Redis", least=least)


def test_a_ratio_at_its_aim_is_reached() -> None:
    assert row(80.0, 0.8).reached is True
    assert row(80.0, 0.8).ratio.startswith("0.80 ")


def test_a_ratio_below_its_aim_is_not_reached() -> None:
    assert row(79.0, 0.8).reached is False


def test_a_ratio_without_an_aim_is_only_reported() -> None:
    assert row(1.0, None).reached is None
    assert row(1.0, None).aim == "reported"


def test_a_latency_is_held_against_its_p50() -> None:
    rows = [
        latency_row("watch", p50_us=us, p99_us=9000, beside="", most_ms=1) for us in (1000, 1001)
    ]
    assert [found.reached for found in rows] == [True, False]


def test_a_missing_peer_does_not_fail_the_run_but_is_named() -> None:
    absent = absent_row("writes", "JetStream always", "too old")
    assert all_reached([row(100.0, 1), absent])
    assert "JetStream always: not measured, too old" in render([absent])


def test_a_part_that_broke_fails_the_run() -> None:
    assert not all_reached([row(100.0, 1), failed_row("watch", "404")])


def test_one_missed_aim_fails_the_run() -> None:
    assert not all_reached([row(100.0, 1), row(99.0, 1)])


def test_a_pipe_in_a_text_does_not_break_the_table() -> None:
    line = render([Row("a|b", "1", "two\nlines")]).splitlines()[-1]
    assert line.startswith("| a\\|b | 1 | two lines |  | reported | ")


def test_rates_are_written_in_the_unit_that_fits() -> None:
    assert [rate(value) for value in (12.0, 81_300.0, 1_230_000.0)] == [
        "12 /s",
        "81.3 k/s",
        "1.23 M/s",
    ]
