"""`make cluster`: Spark on a master and two workers on loopback, and what runs there.

    python -m tests.cluster [ARGUMENTS OF PYTEST]

The tests of the pipeline, then the lines of docs/operating/cluster.md: spark-submit, the package
shipped to executors without it, Spark Connect. With arguments only the tests they choose. Says of
each part whether it passed; ends with 1 if one did not.
"""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.cluster.connect import check_connect
from tests.cluster.standalone import ROOT, Standalone
from tests.cluster.submit import check_submit

DEADLINE_S = 1_800
END_S = 60


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no process is left behind
    parts: dict[str, Callable[[Path], str]] = {"tests": check_tests}
    if not sys.argv[1:]:
        parts |= {"spark-submit": check_submit, "Spark Connect": check_connect}
    passed = [run_part(name, part) for name, part in parts.items()]
    return 0 if all(passed) else 1


def run_part(name: str, part: Callable[[Path], str]) -> bool:
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="topics-cluster-") as folder:
        try:
            verdict = f"passed: {part(Path(folder))}"
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            verdict = f"FAILED: {error}"
    print(f"{name} {verdict} ({time.monotonic() - started_s:.0f} s)", flush=True)
    return verdict.startswith("passed")


def check_tests(folder: Path) -> str:
    chosen = sys.argv[1:] or ["tests/pipeline"]
    with Standalone(folder) as cluster:
        print(f"tests of the pipeline at {cluster.master}", flush=True)
        command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "--durations", "5"]
        child = subprocess.Popen([*command, *chosen], env=cluster.environment, cwd=ROOT)
        try:
            code = child.wait(DEADLINE_S)
        finally:
            end(child)
    assert code == 0, f"pytest ended with {code}"
    return " ".join(chosen)


def end(child: "subprocess.Popen[bytes]") -> None:
    """Let pytest end the servers and the Spark that it has started."""
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


if __name__ == "__main__":
    sys.exit(main())
