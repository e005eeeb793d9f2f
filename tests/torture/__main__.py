"""`make torture`: power cuts and kills until told to stop.

    python -m tests.torture [--seconds N] [--seed S] [--kills N] [--server-kills N]
                            [--power-cuts N]

Without `--seconds` it runs until Ctrl-C. It prints its seed first; a failure prints the seed and
the smallest workload that still fails. The real parts (kill -9, power cuts of an ext4 image) come
first and are bounded; the simulated disk takes the rest of the time. Totals go to
docs/internals/reliability.md.
"""

import argparse
import secrets
import signal
import sys
import time

from tests.torture.report import Totals, save_totals
from tests.torture.rounds import (
    Deadline,
    kill_round,
    power_cut_round,
    server_kill_round,
    simulate_rounds,
)

from topics.testing.crash_observe import Violation

FOREVER_S = 10 * 365 * 86_400


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture")
    parser.add_argument("--seconds", type=float, default=FOREVER_S)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--server-kills", type=int, default=50)
    parser.add_argument("--power-cuts", type=int, default=50)
    options = parser.parse_args()
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    deadline = Deadline(time.monotonic() + options.seconds)
    signal.signal(signal.SIGINT, lambda *_: _stop(deadline))
    print(f"seed {seed}: repeat with `python -m tests.torture --seed {seed}`", flush=True)
    totals = Totals()
    try:
        kill_round(totals, deadline, cycles=options.kills, seed=seed)
        server_kill_round(totals, deadline, cycles=options.server_kills, seed=seed)
        power_cut_round(totals, deadline, cycles=options.power_cuts, seed=seed)
        simulate_rounds(totals, deadline, seed=seed)
    except Violation as violation:
        totals.failures += 1
        print(f"\nFAILED with seed {seed}\n{violation}", file=sys.stderr)
        return 1
    finally:
        print(totals.text(), flush=True)
        save_totals(totals)
    return 0


def _stop(deadline: Deadline) -> None:
    print("\nstopping after this round", flush=True)
    deadline.ends_s = 0.0


if __name__ == "__main__":
    sys.exit(main())
