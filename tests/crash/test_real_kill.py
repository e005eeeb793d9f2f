"""kill -9 of a real process under load, on a real directory."""

from pathlib import Path

import pytest

from topics.testing.crash_real import kill_cycles

CYCLES = 10


@pytest.mark.crash
def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    acks = list(kill_cycles(str(tmp_path / "data"), cycles=CYCLES, seed=1))
    assert len(acks) == CYCLES
    assert sum(acks) > CYCLES
