"""Power cuts of a real file system under a real process."""

from pathlib import Path

import pytest

from topics.testing.crash_real import power_cut_cycles
from topics.testing.power_image import why_not

CYCLES = 3


@pytest.mark.crash
def test_a_power_cut_takes_nothing_that_was_synced(tmp_path: Path) -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"no power cut here: {reason}")
    acks = list(power_cut_cycles(str(tmp_path), cycles=CYCLES, seed=1))
    assert len(acks) == CYCLES
