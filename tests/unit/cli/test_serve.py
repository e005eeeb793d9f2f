"""`topics serve` before it serves: what is missing, what is refused, what is not shown."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from topics.api.auth import parse_keys
from topics.cli import exit_codes, serve
from topics.cli.keys import take_keys
from topics.errors import ConfigError

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


@pytest.mark.parametrize("text", ["", "  "])
def test_keys_that_are_set_but_empty_do_not_open_the_server(
    run: "Run", never_runs: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    monkeypatch.setenv("TOPICS_API_KEYS", text)
    outcome = run("serve")
    assert (outcome.code, never_runs) == (exit_codes.USAGE, [])
    assert "TOPICS_API_KEYS is set, but there is no key in it" in outcome.err
    file = tmp_path / "keys"
    file.write_text(f"{text}\n\n", encoding="utf-8")
    for named in (str(file), ""):
        monkeypatch.setenv("TOPICS_API_KEYS_FILE", named)
        outcome = run("serve")
        assert (outcome.code, never_runs) == (exit_codes.USAGE, [])
        assert "TOPICS_API_KEYS_FILE is set, but" in outcome.err


def test_keys_may_stand_in_a_file_by_line_or_by_comma(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes(b"hunter2:r\r\n\n  other:rw:a.,\nthird,fourth\n")
    environ = {"TOPICS_API_KEYS_FILE": str(file)}
    keyring = parse_keys(take_keys(environ))
    assert keyring.identify("hunter2").scopes == {"read"}
    assert keyring.identify("other").prefixes == ("a.",)
    assert keyring.identify("third").scopes == keyring.identify("fourth").scopes
    assert take_keys({}) == ""
    with pytest.raises(ConfigError, match="both set"):
        take_keys({**environ, "TOPICS_API_KEYS": "k"})
    file.write_bytes(b"hunter2\xff")
    with pytest.raises(ConfigError, match="not UTF-8") as refused:
        take_keys(environ)
    assert "hunter" not in str(refused.value)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        take_keys({"TOPICS_API_KEYS_FILE": str(tmp_path / "none")})


def test_keys_are_no_flag(run: "Run") -> None:
    assert run("serve", "--api-keys", "hunter2").code == exit_codes.USAGE
