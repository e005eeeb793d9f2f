"""Bugs planted on purpose: each patch here must be caught by the tests that it names.

A `.patch` file is a line that says what it breaks, one `Caught-by:` line a test, and a unified
diff. `make planted` runs all of them, `make test` one. A patch that no longer applies
fails: make it again from today's source.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PATCHES = sorted(HERE.glob("*.patch"))
IN_EVERY_RUN = "floor_moved_by_delete"
TIMEOUT_S = 300
TESTS_FAILED = 1


def caught_by(patch: Path) -> list[str]:
    lines = patch.read_text().splitlines()
    return [line.removeprefix("Caught-by: ") for line in lines if line.startswith("Caught-by: ")]


def copy_project(target: Path) -> Path:
    """Copy what a test run needs; caches and built files stay behind."""
    unwanted = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info", "planted")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, target / name, ignore=unwanted)
    shutil.copy(ROOT / "pyproject.toml", target)
    return target


def apply_patch(project: Path, patch: Path) -> None:
    command = ["git", "apply", "--whitespace=nowarn", "-p1", str(patch)]
    # Outside of any repository, or git would look for the files in its own.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(project.parent)}
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.fail(
            f"{patch.name} no longer applies to src/: plant the same bug in today's source and "
            f"write the diff anew.\n{done.stderr}"
        )


def run_tests(project: Path, tests: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TOPICS_PURE_PYTHON": "1", "PYTHONPATH": str(project / "src")}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    return subprocess.run(
        command,
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def check_is_caught(project: Path, patch: Path) -> None:
    """See that each named test passes without the bug and fails with it."""
    tests = caught_by(patch)
    assert tests, f"{patch.name} names no test that catches it"
    sound = run_tests(project, tests)
    assert sound.returncode == 0, f"fails without any bug:\n{sound.stdout}{sound.stderr}"
    apply_patch(project, patch)
    for test in tests:
        found = run_tests(project, [test])
        assert found.returncode == TESTS_FAILED, (
            f"{test} does not catch {patch.name}:\n{found.stdout}{found.stderr}"
        )


def test_there_are_enough_of_them() -> None:
    assert len(PATCHES) >= 10


def test_one_planted_bug_is_caught(tmp_path: Path) -> None:
    check_is_caught(copy_project(tmp_path), HERE / f"{IN_EVERY_RUN}.patch")


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_every_patch_applies(patch: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    apply_patch(tmp_path, patch)


def test_a_patch_that_does_not_apply_is_told(tmp_path: Path) -> None:
    stale = tmp_path / "stale.patch"
    stale.write_text("--- a/src/x.py\n+++ b/src/x.py\n@@ -1 +1 @@\n-old\n+new\n")
    with pytest.raises(pytest.fail.Exception, match=r"stale\.patch no longer applies"):
        apply_patch(tmp_path, stale)


@pytest.mark.slow
@pytest.mark.parametrize(
    "patch", [p for p in PATCHES if p.stem != IN_EVERY_RUN], ids=lambda patch: patch.stem
)
def test_a_planted_bug_is_caught(patch: Path, tmp_path: Path) -> None:
    check_is_caught(copy_project(tmp_path), patch)
