"""The command as a user runs it: arguments in; exit code, stdout and stderr out."""

import os
from collections.abc import Callable
from typing import NamedTuple

import pytest

from topics.cli.main import main


class Outcome(NamedTuple):
    """How one command ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run one command in an environment without any TOPICS_* variable of the machine."""
    for name in [name for name in os.environ if name.startswith("TOPICS_")]:
        monkeypatch.delenv(name)

    def run_command(*arguments: str) -> Outcome:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return Outcome(code, captured.out, captured.err)

    return run_command
