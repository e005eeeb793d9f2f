"""`topics config show`: every value and where it came from."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from topics.cli import exit_codes
from topics.config import ServerConfig, load_config, settings

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run

COLOR = re.compile(rb"\x1b\[(?:[0-9]+;)*3[0-9]")


def test_the_defaults_are_shown_as_a_toml_file(run: "Run") -> None:
    outcome = run("config", "show")
    assert outcome.code == exit_codes.OK
    assert len(outcome.out.splitlines()) == len(settings())
    assert load_config(toml_text=outcome.out).config == ServerConfig()
    assert "# cold_dir is not set" in outcome.out


def test_json_names_the_source_of_every_value(
    run: "Run", monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "my.toml"
    file.write_text('sweep_ms = 5\ntail_cache_bytes = "1MiB"\n', encoding="utf-8")
    monkeypatch.setenv("TOPICS_WAL_SHARDS", "3")
    outcome = run("config", "show", "--json", "--config", str(file), "--cold-threads", "7")
    shown = json.loads(outcome.out)["settings"]
    assert list(shown) == list(settings())
    assert shown["sweep_ms"] == {"value": 5, "source": f"file:{file}"}
    assert shown["tail_cache_bytes"]["value"] == 1_048_576
    assert shown["wal_shards"] == {"value": 3, "source": "env:TOPICS_WAL_SHARDS"}
    assert shown["cold_threads"] == {"value": 7, "source": "flag:--cold-threads"}
    assert shown["data_dir"] == {"value": "./topics-data", "source": "default"}


def test_the_file_may_be_named_by_the_environment(
    run: "Run", monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "my.toml"
    file.write_text("sweep_ms = 5\n", encoding="utf-8")
    monkeypatch.setenv("TOPICS_CONFIG", str(file))
    assert tomllib.loads(run("config", "show").out)["sweep_ms"] == 5


def test_a_secret_is_never_printed(run: "Run", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_API_KEYS", "hunter2:rw")
    monkeypatch.setenv("TOPICS_BROKER_PORT", "4001")
    for arguments in ([], ["--json"]):
        outcome = run("config", "show", *arguments)
        assert "hunter2" not in outcome.out + outcome.err
        assert "(hidden)" in outcome.out
        assert "4001" in outcome.out


def test_a_wrong_setting_is_one_line_on_stderr(run: "Run", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_WAL_SHARD", "3")
    outcome = run("config", "show")
    assert outcome.code == exit_codes.USAGE
    assert outcome.out == ""
    assert outcome.err == (
        "topics: unknown variable TOPICS_WAL_SHARD: did you mean TOPICS_WAL_SHARDS?\n"
    )


@pytest.mark.parametrize("arguments", [["--sweep-ms", "soon"], ["--config", "no-such-file.toml"]])
def test_a_wrong_flag_is_one_line_on_stderr(run: "Run", arguments: list[str]) -> None:
    outcome = run("config", "show", *arguments)
    assert outcome.code == exit_codes.USAGE
    assert outcome.err.count("\n") == 1
    assert arguments[0].removeprefix("--").replace("-", "_") in outcome.err.lower().replace(
        "-", "_"
    )


@pytest.mark.parametrize("arguments", [["config", "show", "--help"], ["nonsense"]])
def test_no_color_is_honoured(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "topics", *arguments]  # Typer looks at this while it is loaded
    environ = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    environ.pop("NO_COLOR", None)
    assert COLOR.search(_printed(command, environ))
    assert not COLOR.search(_printed(command, {**environ, "NO_COLOR": "1"}))


def _printed(command: list[str], environ: dict[str, str]) -> bytes:
    done = subprocess.run(command, env=environ, capture_output=True, check=False)
    return done.stdout + done.stderr


def test_every_setting_is_a_flag(run: "Run", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = run("config", "show", "--help").out
    for setting in settings().values():
        assert f"{setting.flag} " in text
