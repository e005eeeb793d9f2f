"""The history: rates out of counters, bounded, and nothing left of what is gone."""

import math
from typing import Any

import pytest

from topics.console.ring import Ring, add_series, quantile
from topics.console.sampler import KEPT, LEVELS, RATES, Counts, Reading, Sampler
from topics.histogram import LATENCY_US

NO_COUNTS = Counts(bounds=LATENCY_US, counts=[0] * (len(LATENCY_US) + 1))


def reading(second: float, **fields: Any) -> Reading:  # noqa: ANN401 - of a reading
    given: dict[str, Any] = {
        "now_ms": int(1000 * second),
        "monotonic_s": second,
        "counters": dict.fromkeys(RATES, 0),
        "levels": dict.fromkeys(LEVELS, 0),
        "latencies": {"write": NO_COUNTS, "fsync": NO_COUNTS},
        "heads": {},
        "lags": {},
    }
    return Reading(**(given | fields))


def appended(second: float, count: int) -> Reading:
    return reading(second, counters={**dict.fromkeys(RATES, 0), "appended": count})


def heads(second: float, **topics: tuple[int, int]) -> Reading:
    return reading(second, heads=topics)


def test_two_readings_make_a_rate() -> None:
    sampler = Sampler()
    sampler.take(appended(10, 100))
    assert sampler.history()["ts"] == []
    assert sampler.rate("appended") == 0
    sampler.take(appended(15, 150))
    assert sampler.history()["ts"] == [15_000]
    assert sampler.history()["appended"] == [10]
    assert sampler.rate("appended") == 10


def test_a_late_timer_does_not_change_the_rate() -> None:
    sampler = Sampler()
    for second, count in ((0, 0), (5, 50), (25, 250)):
        sampler.take(appended(second, count))
    assert sampler.history()["appended"] == [10, 10]


def test_readings_of_the_same_moment_count_once() -> None:
    sampler = Sampler()
    for second in (0, 5, 5):
        sampler.take(appended(second, 10))
    assert sampler.history()["ts"] == [5_000]


def test_an_hour_is_kept_and_no_more() -> None:
    sampler = Sampler()
    for number in range(KEPT + 10):
        sampler.take(heads(5.0 * number, t=(1, number)))
    assert len(sampler.history()["ts"]) == KEPT
    assert len(sampler.topic("t")) == KEPT
    assert sampler.history(count=3)["ts"] == [5000 * (KEPT + n) for n in (7, 8, 9)]


def test_a_topic_has_a_history_from_its_first_news_on() -> None:
    sampler = Sampler()
    sampler.take(heads(0, quiet=(1, 7), busy=(2, 7)))
    sampler.take(heads(5, quiet=(1, 7), busy=(2, 17)))
    sampler.take(heads(10, quiet=(1, 7), busy=(2, 17), fresh=(3, 5)))
    assert sampler.topic("quiet") == []
    assert sampler.topic("busy") == [2, 0]
    assert sampler.topic("fresh") == [1]


def test_nothing_is_left_of_a_topic_that_was_deleted() -> None:
    sampler = Sampler()
    for reading_ in (heads(0, t=(1, 0)), heads(5, t=(1, 5)), heads(10), heads(15, t=(9, 5))):
        sampler.take(reading_)
    assert sampler.topic("t") == [1]


def test_a_topic_that_was_created_again_starts_anew() -> None:
    sampler = Sampler()
    for reading_ in (heads(0, t=(1, 0)), heads(5, t=(1, 500)), heads(10, t=(2, 10))):
        sampler.take(reading_)
    assert sampler.topic("t") == [2]


def test_the_number_of_histories_is_bounded() -> None:
    sampler = Sampler(max_series=2)
    sampler.take(reading(0))
    sampler.take(heads(5, a=(1, 5), b=(2, 5), c=(3, 5)))
    assert [len(sampler.topic(name)) for name in "abc"] == [1, 1, 0]
    lags = dict.fromkeys("xyz", 1)
    sampler.take(reading(10, lags=lags))
    assert [len(sampler.group(name)) for name in "xyz"] == [1, 1, 0]


def test_the_lag_of_a_group_is_kept_while_there_is_the_group() -> None:
    sampler = Sampler()
    for second, lags in ((0, {"g": 9}), (5, {"g": 5}), (10, {"g": 2})):
        sampler.take(reading(second, lags=lags))
    assert sampler.group("g") == [5, 2]
    sampler.take(reading(15))
    assert sampler.group("g") == []


def test_latencies_are_those_of_the_interval() -> None:
    def with_writes(second: float, *counts: int) -> Reading:
        full = [*counts, *[0] * (len(LATENCY_US) + 1 - len(counts))]
        writes = Counts(bounds=LATENCY_US, counts=full)
        return reading(second, latencies={"write": writes, "fsync": NO_COUNTS})

    sampler = Sampler()
    sampler.take(with_writes(0, 1000))
    sampler.take(with_writes(5, 1000, 0, 100))
    history = sampler.history()
    assert history["write_p50_us"] == [175]
    assert history["write_p99_us"] == [pytest.approx(248.5)]
    assert math.isnan(history["fsync_p99_us"][0])


@pytest.mark.parametrize(
    ("counts", "share", "value"),
    [
        ([4, 0, 0], 0.5, 5.0),
        ([0, 10, 0], 0.9, 19.0),
        ([1, 1, 0], 1.0, 20.0),
        ([0, 0, 3], 0.5, 20.0),
    ],
)
def test_a_quantile_lies_straight_within_its_bucket(
    counts: list[int], share: float, value: float
) -> None:
    assert quantile((10, 20), counts, share) == pytest.approx(value)


def test_a_quantile_of_nothing_is_nothing() -> None:
    assert math.isnan(quantile((10, 20), [0, 0, 0], 0.5))


def test_series_of_any_age_add_up_at_their_end() -> None:
    assert add_series([[1, 2, 3], [10]]) == [1, 2, 13]
    assert add_series([[], [5]]) == [5]
    assert add_series([]) == []


def test_a_ring_keeps_the_newest() -> None:
    ring = Ring(3)
    for value in range(5):
        ring.add(value)
    assert (len(ring), ring.last(3), ring.last(1)) == (3, [2, 3, 4], [4])
