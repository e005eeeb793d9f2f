"""What a torture run did, and the page that keeps it."""

import platform
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/internals/reliability.md"
HEAD = """# What the log has survived

Written by `make torture`; one line a day and commit, runs of the same line are added up. A
simulated crash is one cut point of a workload on the hostile disk with one outcome of the cut;
after each all oracles hold. How it works: `topics.testing.crash_sweep`.

| day (UTC) | commit | kernel | simulated | kill -9 | ext4 power cuts | real acks | failures |
|---|---|---|---|---|---|---|---|
"""


@dataclass
class Totals:
    """Counts of one run."""

    simulated: int = 0
    kills: int = 0
    power_cuts: int = 0
    real_acks: int = 0
    failures: int = 0

    def text(self) -> str:
        return (
            f"{self.simulated} simulated crashes, {self.kills} kills, "
            f"{self.power_cuts} power cuts, "
            f"{self.real_acks} acknowledged writes of real processes, {self.failures} failures"
        )

    def counts(self) -> list[int]:
        return [self.simulated, self.kills, self.power_cuts, self.real_acks, self.failures]


def save_totals(totals: Totals) -> None:
    """Add the counts to today's line for this commit."""
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    name = f"| {day} | {_commit()} | {platform.release()} |"
    lines = PAGE.read_text().splitlines() if PAGE.exists() else HEAD.splitlines()
    counts = totals.counts()
    for line in [line for line in lines if line.startswith(name)]:
        lines.remove(line)
        before = [int(cell) for cell in line.removeprefix(name).split("|") if cell.strip()]
        counts = [a + b for a, b in zip(before, counts, strict=True)]
    lines.append(f"{name} {' | '.join(map(str, counts))} |")
    PAGE.write_text("\n".join(lines) + "\n")


def _commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
        cwd=PAGE.parent,
    )
    return found.stdout.strip() or "none"
