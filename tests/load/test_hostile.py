"""Whatever one client does, everybody else is answered."""

from pathlib import Path

import pytest
from tests.load.hostile import format_row, run_rows

STALL_MS = 50.0
GROWN_BYTES = 256 * 1024 * 1024


@pytest.mark.slow
def test_nobody_holds_the_loop_or_makes_the_server_keep_much(tmp_path: Path) -> None:
    rows = dict(run_rows(str(tmp_path / "data")))
    bad = [
        format_row(name, stall)
        for name, stall in rows.items()
        if stall.worst_ms > STALL_MS or stall.grown_bytes > GROWN_BYTES
    ]
    assert not bad, "\n" + "\n".join(bad)
