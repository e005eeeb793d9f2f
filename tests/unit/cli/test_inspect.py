"""`topics inspect` as an operator runs it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import topics
from topics.cli import exit_codes

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run

WAL = "wal/wal-00000000000000000001.log"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Thirty records in three segments, some deleted."""
    with topics.open(str(tmp_path / "data"), wal_shards=1, segment_max_events=10) as log:
        log.create("orders", durability="fsync", ttl_ms=600_000)
        log.append("orders", [{"data": seq, "tag": f"g:{seq % 5}"} for seq in range(1, 31)])
        log.checkpoint()
        log.delete("orders", match=["tag", "Eq", "g:2"])
    return tmp_path / "data"


def test_people_get_tables(run: "Run", data: Path) -> None:
    outcome = run("inspect", str(data))
    assert (outcome.code, outcome.err) == (exit_codes.OK, "")
    assert outcome.out.startswith("format topics 1; stopped cleanly\n")
    assert "orders (1): " in outcome.out
    assert '"ttl_ms":600000' in outcome.out
    rows = [line.split() for line in outcome.out.splitlines()]
    assert ["1", "to", "10", "hot", "510", "B", "8", "20%"] in [row[:8] for row in rows] or any(
        row[:4] == ["1", "to", "10", "hot"] and row[-2:] == ["8", "20%"] for row in rows
    )
    assert "30 Append, 1 TopicCreate, 1 Delete" in outcome.out


def test_programs_get_json(run: "Run", data: Path) -> None:
    report = json.loads(run("inspect", str(data), "--json").out)
    (topic,) = report["topics"]
    assert (topic["name"], topic["records"], topic["head_seq"]) == ("orders", 24, 30)
    assert report["stopped_cleanly"]
    assert not report["in_use_by_a_process"]


def test_it_works_while_a_process_has_the_directory_open(run: "Run", data: Path) -> None:
    with topics.open(str(data), wal_shards=1):
        outcome = run("inspect", str(data))
    assert outcome.code == exit_codes.OK
    assert "in use by a process" in outcome.out
    assert "what is shown may move" in outcome.out


@pytest.mark.parametrize("named", [WAL, WAL.rpartition("/")[2], "absolute"])
def test_the_frames_of_a_wal_file_are_listed(run: "Run", data: Path, named: str) -> None:
    file = str(data / WAL) if named == "absolute" else named
    outcome = run("inspect", str(data), "--wal", file, "--limit", "5")
    assert outcome.code == exit_codes.OK
    assert "TopicCreate" in outcome.out
    assert "go on with --offset" in outcome.out
    listing = json.loads(run("inspect", str(data), "--wal", file, "--limit", "5", "--json").out)
    assert listing["path"] == WAL
    assert len(listing["frames"]) == 5
    following = str(listing["next_offset"])
    rest = json.loads(run("inspect", str(data), "--wal", file, "--offset", following, "--json").out)
    assert rest["frames"][0]["offset"] == listing["next_offset"]


@pytest.mark.parametrize("named", ["wal-00000000000000000009.log", "/etc/passwd", "../data2"])
def test_a_file_that_is_not_in_the_directory_is_refused(run: "Run", data: Path, named: str) -> None:
    outcome = run("inspect", str(data), "--wal", named)
    assert outcome.code == exit_codes.ERROR
    assert outcome.err == (
        f"topics: {named} is no file in {data}: topics inspect DIR lists the WAL files\n"
    )


def test_as_a_process_on_a_damaged_directory(data: Path) -> None:
    for path in data.glob("meta/snapshot.*.bin"):
        path.write_bytes(b"nonsense")
    command = [sys.executable, "-m", "topics", "inspect", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == exit_codes.OK
    assert "note: no snapshot is readable: run topics repair" in done.stdout
    assert "orders" in done.stdout
