"""Five queues, one server."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from topics.engine.delivery.bands import WEIGHTS, Bands

BANDS = st.integers(0, len(WEIGHTS) - 1)


def drained(bands: Bands[tuple[int, int]]) -> list[tuple[int, int]]:
    out = []
    while (item := bands.pop()) is not None:
        out.append(item)
    return out


@given(st.lists(BANDS))
def test_everything_comes_out_once_and_each_band_in_its_order(pushed: list[int]) -> None:
    bands: Bands[tuple[int, int]] = Bands()
    for number, band in enumerate(pushed):
        bands.push((band, number), band)
    out = drained(bands)
    assert len(bands) == 0
    assert sorted(number for _, number in out) == list(range(len(pushed)))
    for band in range(len(WEIGHTS)):
        numbers = [number for found, number in out if found == band]
        assert numbers == sorted(numbers)


def test_full_bands_share_by_weight() -> None:
    bands: Bands[tuple[int, int]] = Bands()
    for band in range(len(WEIGHTS)):
        for number in range(100):
            bands.push((band, number), band)
    rounds = 5
    first = [bands.pop() for _ in range(rounds * sum(WEIGHTS))]
    shares = Counter(item[0] for item in first if item is not None)
    assert [shares[band] for band in range(len(WEIGHTS))] == [rounds * w for w in WEIGHTS]


def test_an_empty_band_leaves_its_share_to_the_others() -> None:
    bands: Bands[int] = Bands()
    for number in range(50):
        bands.push(number, 4)
    assert [bands.pop() for _ in range(50)] == list(range(50))


def test_what_waits_can_change_its_band_or_be_taken_out() -> None:
    bands: Bands[tuple[int, int]] = Bands()
    for number in range(6):
        bands.push((4, number), 4)
    bands.rearrange(lambda item: 0 if item[1] % 2 else 4)
    assert bands.take(4) == [(4, 0), (4, 2), (4, 4)]
    assert drained(bands) == [(4, 1), (4, 3), (4, 5)]
