"""`make cluster`: a master and two workers on loopback, and the tests of the pipeline on them."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.cluster.standalone import ROOT, Standalone

DEADLINE_S = 1_800


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no process is left behind
    chosen = sys.argv[1:] or ["tests/pipeline"]
    with (
        tempfile.TemporaryDirectory(prefix="topics-cluster-") as folder,
        Standalone(Path(folder)) as cluster,
    ):
        print(f"cluster at {cluster.master}", flush=True)
        command = [sys.executable, "-m", "pytest", "-n", "0", "-q", *chosen]
        done = subprocess.run(
            command, env=cluster.environment, cwd=ROOT, check=False, timeout=DEADLINE_S
        )
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
