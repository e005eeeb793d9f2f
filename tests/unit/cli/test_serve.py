"""`topics serve` before it serves: what is missing, what is refused, what is not shown."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from topics.cli import exit_codes, serve

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from tests.unit.cli.conftest import Run


@pytest.fixture
def never_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note that the server would run now."""
    noted: list[str] = []

    def note(work: "Coroutine[Any, Any, None]") -> None:
        work.close()
        noted.append("run")

    monkeypatch.setattr(serve, "_run", note)
    return noted


def test_a_missing_extra_is_named(run: "Run", monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("topics.api")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "httptools", None)
    outcome = run("serve")
    assert outcome.code == exit_codes.USAGE
    assert "pip install 'topics-log[server,cli]'" in outcome.err
    assert "httptools" in outcome.err


def test_an_open_bind_without_keys_is_refused(run: "Run", tmp_path: Path) -> None:
    outcome = run("serve", "--host", "0.0.0.0", "--port", "0", "--data-dir", str(tmp_path))
    assert outcome.code == exit_codes.USAGE
    assert "TOPICS_ALLOW_INSECURE_NO_AUTH=1" in outcome.err


def test_a_malformed_key_is_refused_and_not_shown(
    run: "Run", never_runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPICS_API_KEYS", "hunter2:fly")
    outcome = run("serve")
    assert outcome.code == exit_codes.USAGE
    assert "entry 1" in outcome.err
    assert "hunter2" not in outcome.out + outcome.err
    assert never_runs == []


def test_keys_leave_the_environment(
    run: "Run", never_runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPICS_API_KEYS", "hunter2")
    outcome = run("serve")
    assert outcome.code == exit_codes.OK
    assert never_runs == ["run"]
    assert "TOPICS_API_KEYS" not in os.environ
    assert "hunter2" not in outcome.out + outcome.err


def test_keys_are_no_flag(run: "Run") -> None:
    assert run("serve", "--api-keys", "hunter2").code == exit_codes.USAGE
