"""Cut the start after a crash at each of its own calls: the next one finds the same (oracle 9)."""

import pytest
from tests.crash.scenarios import SCENARIOS, Scenario, tiny

from topics.testing.crash_sweep import KILL, check_recovery_cuts, record, told

INNER_SEEDS = [0, 9, KILL]


@pytest.mark.crash
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_start_may_be_cut_anywhere(scenario: Scenario) -> None:
    config = tiny(2 if SCENARIOS.index(scenario) % 2 else 1)
    cut_points = record(config, scenario.operations)
    crashes = 0
    for number in range(11, len(cut_points), max(1, len(cut_points) // 4)):
        for seed in (0, 4, KILL):
            with told(f"cut point {number} of {len(cut_points)}, seed {seed}, {scenario.name}"):
                crashes += check_recovery_cuts(config, cut_points[number], seed, seeds=INNER_SEEDS)
    assert crashes >= 300, "the sweep has shrunk"
