"""`topics repair` as an operator runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import topics
from topics.cli import exit_codes

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run

SEGMENT = "topics/0000000000000001/seg-0000000000000011.data"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Thirty records in three segments, none of them on the log any more, one damaged."""
    directory = str(tmp_path / "data")
    for _ in range(4):
        with topics.open(directory, wal_shards=1, segment_max_events=10) as log:
            if "orders" not in log.topics():
                log.append("orders", [{"data": seq} for seq in range(1, 31)])
            log.checkpoint()
    path = tmp_path / "data" / SEGMENT
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    return tmp_path / "data"


def test_it_says_exactly_what_was_lost(run: "Run", data: Path) -> None:
    new = data.parent / "new"
    outcome = run("repair", str(data), "--into", str(new))
    assert (outcome.code, outcome.err) == (exit_codes.DAMAGE, "")
    assert outcome.out.splitlines() == [
        f"damage   offset 0: {SEGMENT}: bytes 0 to 48 are no frames, or fail their checksum",
        "topic    orders: 29 records kept, 1 lost",
        f"         lost: seq 11: {SEGMENT} is damaged at offset 0",
        "29 records kept, 1 lost, 0 seqs set aside",
        f"{new} is healthy: open it in place of the old one",
    ]
    assert run("verify", str(new)).code == exit_codes.OK
    with topics.open(str(new)) as log:
        page = log.diff("orders", from_seq=0, limit=100)
        assert [record.data for record in page.records] == list(range(1, 11))
        page = log.diff("orders", from_seq=10, limit=100)
        assert page.tombstone is not None
        assert (page.tombstone.gap_from, page.tombstone.reason) == (11, "crash")


def test_a_dry_run_writes_nothing(run: "Run", data: Path) -> None:
    new = data.parent / "new"
    outcome = run("repair", str(data), "--into", str(new), "--dry-run", "--json")
    report = json.loads(outcome.out)
    assert outcome.code == exit_codes.DAMAGE
    assert not new.exists()
    assert (report["into"], report["records_kept"], report["records_lost"]) == (None, 29, 1)
    assert report["topics"][0]["lost"] == [
        {"first_seq": 11, "last_seq": 11, "count": 1, "why": f"{SEGMENT} is damaged at offset 0"}
    ]


def test_nothing_lost_ends_with_0(run: "Run", tmp_path: Path) -> None:
    with topics.open(str(tmp_path / "data")) as log:
        log.append("orders", [{"data": 1}])
    outcome = run("repair", str(tmp_path / "data"), "--into", str(tmp_path / "new"))
    assert outcome.code == exit_codes.OK


def test_a_target_that_could_do_harm_is_refused(run: "Run", data: Path) -> None:
    before = sorted(data.parent.rglob("*"))
    full = data.parent / "full"
    full.mkdir()
    (full / "photo.jpg").write_bytes(b"")
    for into in (data, data / "inside", full, full / "photo.jpg"):
        outcome = run("repair", str(data), "--into", str(into))
        assert outcome.code == exit_codes.USAGE
        assert outcome.err.startswith(f"topics: {into} is ")
        assert outcome.err.count("\n") == 1
    outcome = run("repair", str(data))
    assert outcome.code == exit_codes.USAGE
    assert "--into" in outcome.err
    assert [p for p in sorted(data.parent.rglob("*")) if full not in (p, *p.parents)] == before


def test_a_directory_in_use_ends_with_4(run: "Run", tmp_path: Path) -> None:
    with topics.open(str(tmp_path / "data")):
        outcome = run("repair", str(tmp_path / "data"), "--into", str(tmp_path / "new"))
    assert outcome.code == exit_codes.LOCKED
    assert not (tmp_path / "new").exists()


def test_as_a_process(data: Path) -> None:
    command = [sys.executable, "-m", "topics", "repair", str(data), "--into", str(data) + "-new"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == exit_codes.DAMAGE
    assert done.stderr == ""
    assert "lost: seq 11" in done.stdout


def test_the_help_tells_what_it_does(run: "Run") -> None:
    text = run("repair", "--help").out
    for word in ("--into", "--dry-run", "--cold", "--json", "never touched", "Exit code 0"):
        assert word in text
