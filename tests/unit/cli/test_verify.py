"""`topics verify` as an operator runs it."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import topics
from topics.cli import exit_codes

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Thirty records in three segments."""
    with topics.open(str(tmp_path / "data"), wal_shards=1, segment_max_events=10) as log:
        log.create("orders", durability="fsync")
        log.append("orders", [{"data": seq, "tag": f"g:{seq % 5}"} for seq in range(1, 31)])
        log.checkpoint()
    return tmp_path / "data"


def damage(data: Path, first_seq: int = 11) -> str:
    path = data / f"topics/0000000000000001/seg-{first_seq:016d}.data"
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    return path.relative_to(data).as_posix()


def test_a_healthy_directory_ends_with_0(run: "Run", data: Path) -> None:
    outcome = run("verify", str(data))
    assert (outcome.code, outcome.err) == (exit_codes.OK, "")
    assert outcome.out.splitlines()[-1] == "healthy"
    assert "30 records in segments, 1 topic" in outcome.out


def test_damage_ends_with_3_and_names_file_offset_and_way_out(run: "Run", data: Path) -> None:
    path = damage(data)
    outcome = run("verify", str(data))
    assert (outcome.code, outcome.err) == (exit_codes.DAMAGE, "")
    assert outcome.out.splitlines() == [
        f"damaged  {path}",
        "         offset 0, seq 11: 51 bytes that are no frame, or fail their checksum",
        outcome.out.splitlines()[2],
        "damaged: 1 file",
        f"restore a backup, or run: topics repair {data} --into NEWDIR",
    ]


def test_json_has_a_verdict_for_every_file(run: "Run", data: Path) -> None:
    path = damage(data)
    outcome = run("verify", str(data), "--json")
    report = json.loads(outcome.out)
    assert outcome.code == exit_codes.DAMAGE
    assert not report["healthy"]
    verdicts = {file["path"]: file["verdict"] for file in report["files"]}
    assert {name for name, verdict in verdicts.items() if verdict != "ok"} == {path}
    assert {"meta/FORMAT", "wal/CURRENT"} <= set(verdicts)
    (bad,) = [file for file in report["files"] if file["path"] == path]
    assert bad["findings"] == [
        {
            "message": "51 bytes that are no frame, or fail their checksum",
            "offset": 0,
            "first_seq": 11,
            "last_seq": 11,
        }
    ]


def test_a_directory_in_use_ends_with_4(run: "Run", data: Path) -> None:
    with topics.open(str(data), wal_shards=1):
        outcome = run("verify", str(data))
    assert outcome.code == exit_codes.LOCKED
    assert outcome.out == ""
    assert outcome.err == (
        f"topics: this process already has {data} open: "
        "stop it first, or use a copy of the directory\n"
    )


def test_a_wrong_directory_ends_with_2_and_is_not_made(run: "Run", tmp_path: Path) -> None:
    missing = tmp_path / "nothing"
    assert run("verify", str(missing)).code == exit_codes.USAGE
    assert not missing.exists()
    outcome = run("verify", str(tmp_path))
    assert outcome.code == exit_codes.USAGE
    assert outcome.err == (
        f"topics: {tmp_path} holds no topics data: it has no meta, wal or topics in it\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_cold_tier_is_asked_for_and_taken_from_the_environment(
    run: "Run", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, cold = tmp_path / "data", tmp_path / "cold"
    with topics.open(
        str(data),
        wal_shards=1,
        segment_max_events=10,
        cold_dir=str(cold),
        hot_retain_segments=0,
    ) as log:
        log.append("orders", [{"data": seq} for seq in range(30)])
        log.checkpoint()
        log.engine.relocate()
    outcome = run("verify", str(data))
    assert outcome.code == exit_codes.USAGE
    assert "--cold DIR" in outcome.err
    assert run("verify", str(data), "--cold", str(cold)).code == exit_codes.OK
    monkeypatch.setenv("TOPICS_COLD_DIR", str(cold))
    assert run("verify", str(data)).code == exit_codes.OK


def test_as_a_process_it_leaves_with_its_code_and_no_bar_in_a_pipe(data: Path) -> None:
    damage(data)
    command = [sys.executable, "-m", "topics", "verify", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == exit_codes.DAMAGE
    assert done.stderr == ""
    assert "\x1b" not in done.stdout


def test_on_a_terminal_a_bar_shows_on_stderr_alone(data: Path) -> None:
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "topics", "verify", str(data)]
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=follower, env=environ, check=False
    )
    os.close(follower)
    shown = os.read(leader, 65_536).decode()
    os.close(leader)
    assert done.returncode == exit_codes.OK
    assert "checking" in shown
    assert done.stdout.decode().splitlines()[-1] == "healthy"


def test_on_a_terminal_a_name_cannot_steer_it(data: Path) -> None:
    (data / "topics/0000000000000001/\x1b[2J.tmp").write_bytes(b"")
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "topics", "verify", str(data)]
    subprocess.run(command, stdout=follower, stderr=subprocess.DEVNULL, check=False)
    os.close(follower)
    shown = os.read(leader, 65_536).decode()
    os.close(leader)
    assert "?[2J.tmp" in shown
    assert "\x1b[2J" not in shown


def test_the_help_tells_the_exit_codes(run: "Run") -> None:
    text = run("verify", "--help").out
    assert "Exit code 0: healthy" in text
    assert "--cold" in text
    assert "--json" in text
