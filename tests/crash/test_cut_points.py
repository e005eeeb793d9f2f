"""Cut the power, or kill the process, at every disk call of every scenario; then start again.

Promises under test: oracles 1 to 5 of the fault notes, repeats that stay repeats, and a second
crash that changes nothing.
"""

from collections.abc import Callable

import pytest
from tests.crash.scenarios import FLOOD, SCENARIOS, Scenario, tiny, tiny_in_flood

from topics.engine.engine import Engine
from topics.testing.crash_recorder import RecordingFile
from topics.testing.crash_sweep import KILL, crash_everywhere, record

SHARDS = (1, 2)
SEEDS = [0, 17, KILL]
CRASHES_MIN = 5_000


@pytest.mark.crash
@pytest.mark.parametrize("wal_shards", SHARDS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_crash_at_any_call_keeps_every_promise(scenario: Scenario, wal_shards: int) -> None:
    config = tiny(wal_shards)
    cut_points = record(config, scenario.operations)
    assert len(cut_points) >= scenario.cut_points_min, "the sweep has shrunk"
    crashes = crash_everywhere(config, cut_points, SEEDS, label=scenario.name)
    print(f"{scenario.name}, {wal_shards} shards: {crashes} crashes")  # noqa: T201 - shown by -rP


@pytest.mark.crash
@pytest.mark.parametrize("wal_shards", SHARDS)
def test_a_crash_at_any_call_in_a_flood_keeps_every_promise(
    wal_shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    for name in ("clear", "write_past_cache"):
        monkeypatch.setattr(RecordingFile, name, _noted(getattr(RecordingFile, name), calls))
    monkeypatch.setattr(Engine, "is_behind", True)  # a real one needs more than can be swept
    config = tiny_in_flood(wal_shards)
    cut_points = record(config, FLOOD.operations)
    assert len(cut_points) >= FLOOD.cut_points_min, "the sweep has shrunk"
    assert min(calls.count("clear"), calls.count("write_past_cache")) >= 2
    crash_everywhere(config, cut_points, SEEDS, label=FLOOD.name)


def _noted(call: Callable[..., None], calls: list[str]) -> Callable[..., None]:
    def noted(*arguments: object) -> None:
        calls.append(call.__name__)
        call(*arguments)

    return noted


@pytest.mark.crash
def test_the_sweeps_have_enough_cut_points() -> None:
    cut_points = sum(scenario.cut_points_min for scenario in SCENARIOS) * len(SHARDS)
    assert cut_points * len(SEEDS) >= CRASHES_MIN * 2


@pytest.mark.crash
def test_another_number_of_shards_finds_the_same() -> None:
    for scenario in SCENARIOS[3:6]:
        for before, after in ((1, 2), (2, 1)):
            cut_points = record(tiny(before), scenario.operations)[::5]
            crash_everywhere(tiny(after), cut_points, [0, KILL], label=scenario.name)
