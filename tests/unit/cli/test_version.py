"""`topics version`, and how the command starts and fails."""

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from topics import errors, kernel
from topics.cli import exit_codes

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run


def test_version_says_which_kernel_runs(run: "Run") -> None:
    outcome = run("version")
    assert outcome.code == exit_codes.OK
    first, second, third = outcome.out.splitlines()
    assert first == "topics 0.1.0"
    assert second.endswith(".".join(map(str, sys.version_info[:3])))
    assert third == f"kernel {kernel.IMPLEMENTATION}"


def test_the_version_is_an_option_too(run: "Run") -> None:
    outcome = run("--version")
    assert (outcome.code, outcome.out, outcome.err) == (exit_codes.OK, "topics 0.1.0\n", "")
    assert "--version" in run("--help").out


def test_version_speaks_json(run: "Run") -> None:
    facts = json.loads(run("version", "--json").out)
    assert facts["version"] == "0.1.0"
    assert facts["kernel"] in ("native", "pure")
    assert set(facts) == {"version", "python", "python_implementation", "kernel"}


def test_the_module_runs_like_the_command() -> None:
    environ = {**os.environ, "TOPICS_PURE_PYTHON": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "topics", "version"], env=environ, capture_output=True, check=True
    )
    assert done.stdout.splitlines()[-1] == b"kernel pure"
    assert done.stderr == b""


def test_a_missing_extra_is_explained() -> None:
    program = "import sys; sys.modules['typer'] = None; import topics.__main__ as m; m.main()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == exit_codes.ERROR
    assert done.stdout == ""
    assert done.stderr == (
        "topics: the command line is not installed: run pip install 'topics-log[cli]'\n"
    )


def test_an_unknown_command_is_a_usage_error(run: "Run") -> None:
    outcome = run("versoin")
    assert outcome.code == exit_codes.USAGE
    assert outcome.out == ""
    assert "version" in outcome.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("x"), exit_codes.USAGE),
        (errors.CorruptData("x"), exit_codes.DAMAGE),
        (errors.DirectoryLocked("x"), exit_codes.LOCKED),
        (errors.TopicNotFound("x"), exit_codes.NOT_THERE),
        (errors.RouterNotFound("x"), exit_codes.NOT_THERE),
        (errors.Unreachable("x"), exit_codes.LATER),
        (errors.Throttled(5), exit_codes.LATER),
        (errors.RequestError("x"), exit_codes.ERROR),
        (errors.DiskFull("x"), exit_codes.ERROR),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_has_its_exit_code(error: errors.TopicsError, code: int) -> None:
    assert exit_codes.exit_code_of(error) == code


def test_every_exit_code_is_documented() -> None:
    assert exit_codes.__doc__ is not None
    for code in (
        exit_codes.OK,
        exit_codes.ERROR,
        exit_codes.USAGE,
        exit_codes.DAMAGE,
        exit_codes.LOCKED,
        exit_codes.LATER,
        exit_codes.NOT_THERE,
        exit_codes.GAPS,
        exit_codes.INTERRUPTED,
    ):
        assert f"\n{code}  " in exit_codes.__doc__
