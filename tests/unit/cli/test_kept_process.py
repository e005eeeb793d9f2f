"""A child that is started again: after a failure, not after an end, never once we end."""

import sys
import threading
from pathlib import Path

import pytest

from topics.cli.kept_process import KeptProcess

DEADLINE_S = 20.0


class Told:
    """What was told, with an event for every line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._came = threading.Semaphore(0)

    def __call__(self, text: str) -> None:
        self.lines.append(text)
        self._came.release()

    def wait(self) -> str:
        assert self._came.acquire(timeout=DEADLINE_S), self.lines
        return self.lines[-1]


def start(tmp_path: Path, code: str, told: Told) -> KeptProcess:
    command = [sys.executable, "-c", code, str(tmp_path / "runs")]
    return KeptProcess(command, tmp_path / "said", tell=told, pause_s=0.05)


COUNT = "import sys; open(sys.argv[1], 'a').write('x')\n"
READ = "sys.stdin.read()\n"


def test_a_child_that_fails_is_started_again_after_longer_and_longer_pauses(tmp_path: Path) -> None:
    told = Told()
    kept = start(tmp_path, COUNT + "print('no luck'); sys.exit(1)", told)
    assert "failed with code 1, starts again in 0.05 s" in told.wait()
    assert "starts again in 0.1 s" in told.wait()
    kept.end()
    assert len((tmp_path / "runs").read_text()) >= 2
    assert (tmp_path / "said").read_text().count("no luck") >= 2, "both runs are in the file"


@pytest.mark.parametrize("code", [0, 2])
def test_a_child_that_ends_or_refuses_its_arguments_is_left_alone(
    tmp_path: Path, code: int
) -> None:
    told = Told()
    kept = start(tmp_path, COUNT + f"sys.exit({code})", told)
    assert told.wait().startswith(f"ended with code {code}")
    kept.end()
    assert (tmp_path / "runs").read_text() == "x"


def test_a_child_ends_with_its_input_and_nothing_is_told(tmp_path: Path) -> None:
    told = Told()
    kept = start(tmp_path, COUNT + READ, told)
    kept.end()
    assert told.lines == []


def test_none_is_started_once_we_end(tmp_path: Path) -> None:
    told = Told()
    command = [sys.executable, "-c", COUNT + "sys.exit(1)", str(tmp_path / "runs")]
    kept = KeptProcess(command, tmp_path / "said", tell=told, pause_s=3600)
    told.wait()
    kept.end()
    assert (tmp_path / "runs").read_text() == "x"
