"""Export and import: what is in a topic goes through a file and is the same afterwards."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from tests.client.cli.conftest import Run, on_terminal, piped
from tests.client.faces import DEADLINE_S, fresh

from topics.cli import exit_codes
from topics.cli.import_file import BATCH_RECORDS, Import
from topics.client import Topics
from topics.model.diff import Record
from topics.testing.server_process import ServerProcess

FORMATS = ["ndjson", "parquet"]
AWKWARD = (
    b'{"records":['
    b'{"data":{"a": 1.50,"b":[ ]},"tag":"t","node":"n","meta":{"k": 1e2}},'
    b'{"data":null},'
    b'{"data":"\\u001b[31m \xc2\x9b","meta":{}},'
    b'{"data":12345678901234567890123,"tag":"","node":""},'
    b'{"data":"line\\nbreak","meta":{"deep":{"x":[1, 2]}}}'
    b"]}"
)


def stored(api: Topics, topic: str) -> list[tuple[Any, ...]]:
    """Return the very bytes of what a topic holds."""
    records: list[Record] = []
    from_seq = 0
    while True:
        page = api.diff(topic, from_seq=from_seq, limit=1000)
        records += page.records
        from_seq = page.next_from_seq
        if page.caught_up:
            return [(r.tag, r.node, bytes(r.meta_json), bytes(r.data_json)) for r in records]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_round_trip_keeps_every_byte(run: Run, api: Topics, tmp_path: Path, kind: str) -> None:
    source, dest = fresh("out"), fresh("in")
    api.append_json(source, AWKWARD)
    file = str(tmp_path / "file")
    outcome = run("export", source, "-o", file, "--format", kind)
    assert outcome.err == ""
    (told,) = outcome.lines
    assert told == {"file": file, "topics": [source], "records": 5, "gaps": 0}
    (taken,) = run("import", file, dest).lines
    assert (taken["written"], taken["already_there"]) == (5, 0)
    assert stored(api, dest) == stored(api, source)


@pytest.mark.parametrize("kind", FORMATS)
def test_partitions_go_through_a_file_by_their_keys(
    run: Run, api: Topics, tmp_path: Path, kind: str
) -> None:
    source, dest, plain = fresh("parts"), fresh("parts"), fresh("plain")
    api.create(source, partitions=3)
    api.create(dest, partitions=3)
    for n in range(40):
        meta = {"meta": {"n": n}} if n % 2 else {}
        tag = {"tag": f"t{n}"} if n % 3 else {}
        api.append(source, [{"data": n, "key": f'user "{n % 7}"', **tag, **meta}])
    file = str(tmp_path / f"all.{kind}")
    assert run("export", source, "-o", file).lines[0]["records"] == 40
    run("import", file, dest)
    run("import", file, plain)
    for number in range(3):
        assert stored(api, f"{dest}-{number}") == stored(api, f"{source}-{number}")
    assert {int(data) for *_, data in stored(api, plain)} == set(range(40))
    times = [line["$ts"] for line in run("export", source).lines]
    assert times == sorted(times), "partitions are merged by their times"  # type: ignore[type-var] # numbers


def test_a_file_is_taken_once_however_often_it_is_imported(
    run: Run, api: Topics, tmp_path: Path
) -> None:
    topic = fresh("once")
    lines = "".join(f'{{"data":{n}}}\n' for n in range(2_300))
    (tmp_path / "a").write_text(lines)
    (tmp_path / "copy").write_text(lines)
    (tmp_path / "other").write_text(lines + '{"data":"more"}\n')
    assert run("import", str(tmp_path / "a"), topic).lines[0]["written"] == 2_300
    again = run("import", str(tmp_path / "a"), str(tmp_path / "copy"), topic).lines
    assert [(row["written"], row["already_there"]) for row in again] == [(0, 2_300)] * 2
    assert api.state(topic).count == 2_300
    assert run("import", str(tmp_path / "a"), topic, "--run", "2").lines[0]["written"] == 2_300
    assert run("import", str(tmp_path / "other"), topic).lines[0]["written"] == 2_301


@pytest.mark.parametrize("partitions", [0, 3])
def test_a_rerun_after_a_cut_completes_the_rest(
    run: Run, api: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    topic = fresh("cut")
    if partitions:
        api.create(topic, partitions=partitions)
    file = tmp_path / "file"
    count = 4 * BATCH_RECORDS + 7
    file.write_text("".join(f'{{"data":{n},"tag":"k{n % 50}"}}\n' for n in range(count)))
    send: Callable[..., int] = Import._send

    def cut(self: Import, batch: list[dict[str, object]], producer_id: str, last: int) -> int:
        if last > 2 * BATCH_RECORDS:
            raise KeyboardInterrupt
        return send(self, batch, producer_id, last)

    with monkeypatch.context() as patched:
        patched.setattr(Import, "_send", cut)
        assert run("import", str(file), topic).code != exit_codes.OK
    assert api.state(topic).count == 2 * BATCH_RECORDS
    (row,) = run("import", str(file), topic).lines
    assert (row["already_there"], row["written"]) == (2 * BATCH_RECORDS, count - 2 * BATCH_RECORDS)
    parts = [f"{topic}-{n}" for n in range(partitions)] or [topic]
    found = [int(data) for part in parts for *_, data in stored(api, part)]
    assert sorted(found) == list(range(count))


def test_loss_ends_an_export_unless_it_is_allowed(run: Run, api: Topics, tmp_path: Path) -> None:
    topic = fresh("lossy")
    api.create(topic, cap_records=2)
    api.append(topic, [{"data": n} for n in range(5)])
    file = tmp_path / "file"
    lossy = run("export", topic, "-o", str(file))
    assert lossy.code == exit_codes.GAPS
    assert f"lost: seqs 1 to 3 of {topic} (cap)" in lossy.err
    assert list(tmp_path.glob("file*")) == [], "no file that looks whole"
    allowed = run("export", topic, "-o", str(file), "--allow-gaps")
    assert (allowed.code, allowed.lines[0]["records"], allowed.lines[0]["gaps"]) == (0, 2, 1)
    assert "lost: seqs 1 to 3" in allowed.err
    behind = run("export", topic, "--from-seq", "3")
    assert (behind.code, behind.err, len(behind.lines)) == (0, "", 2)


def test_an_export_begins_and_ends_where_it_is_told(run: Run, api: Topics) -> None:
    topic = fresh("span")
    api.append(topic, [{"data": n} for n in range(1, 2_501)])
    assert [line["$seq"] for line in run("export", topic, "--to-seq", "2").lines] == [1, 2]
    middle = run("export", topic, "--from-seq", "999", "--to-seq", "2001").lines
    assert [line["$seq"] for line in middle] == list(range(1_000, 2_002))
    assert len(run("export", topic, "--since", "2020-01-01").lines) == 2_500
    assert run("export", topic, "--until", "2020-01-01").lines == []
    wrong = run("export", topic, "--since", "2021-01-01", "--until", "2020-01-01")
    assert wrong.code == exit_codes.ERROR


def test_nothing_is_written_of_a_file_with_a_bad_line(
    run: Run, api: Topics, tmp_path: Path
) -> None:
    topic = fresh("bad")
    bad = tmp_path / "bad"
    for line in ("{", '{"tag":"no data"}', '{"data":1,"tag":7}', "\x00"):
        bad.write_text('{"data":1}\n\n' + line + "\n")
        outcome = run("import", str(bad), topic)
        assert outcome.code == exit_codes.ERROR
        assert f"line 3 of {bad}" in outcome.err
    assert topic not in api.topics(topic)
    assert run("import", str(tmp_path / "none"), topic).code == exit_codes.USAGE
    assert run("import", str(tmp_path), topic).code == exit_codes.USAGE


def letters(api: Topics, metas: list[dict[str, Any] | None]) -> str:
    """Make a topic of the dead letters of jobs with such metas; the first record is a plain one."""
    dead, queue = fresh("dead"), fresh("q")
    api.append(dead, [{"data": "plain", "meta": {"k": 0}}])
    api.create(queue, type="queue", max_deliveries=1, dead_letter=dead)
    api.append(
        queue, [{"data": 1} if meta is None else {"data": 1, "meta": meta} for meta in metas]
    )
    jobs = api.claim(queue, node="w", max=9).jobs
    api.nack(queue, [job.seq for job in jobs], node="w")
    assert api.claim(queue, node="w").jobs == []
    return dead


@pytest.mark.parametrize("kind", FORMATS)
def test_dead_letters_in_a_file_are_refused_with_the_way_to_take_them(
    run: Run, api: Topics, tmp_path: Path, kind: str
) -> None:
    full = {f"k{number}": number for number in range(64)}
    dead, dest, file = letters(api, [{"a": 1}, None, full]), fresh("in"), str(tmp_path / "file")
    assert run("export", dead, "-o", file, "--format", kind).code == exit_codes.OK
    for flags in ([], ["--dry-run"]):
        refused = run("import", file, dest, *flags)
        assert refused.code == exit_codes.ERROR
        where = "line 2" if kind == "ndjson" else "row 2"
        assert f"{where} of {file} is a dead letter: its meta has '$dead_letter_" in refused.err
        assert "--drop-dead-letter-meta" in refused.err
    assert dest not in api.topics()
    for written in (4, 0):
        (taken,) = run("import", file, dest, "--drop-dead-letter-meta").lines
        assert taken["written"] == written
    assert [r.meta for r in api.diff(dest).records] == [{"k": 0}, {"a": 1}, None, full]


def test_what_tail_prints_can_be_imported(run: Run, api: Topics, tmp_path: Path) -> None:
    topic, dest = fresh("lossy"), fresh("in")
    api.create(topic, cap_records=1)
    api.append(topic, [{"data": n, "tag": "t"} for n in range(3)])
    file = tmp_path / "tailed"
    file.write_text(run("tail", topic, "--from-seq", "0", "--until-caught-up").out)
    assert '"tombstone"' in file.read_text()
    assert run("import", str(file), dest).lines[0]["written"] == 1
    assert stored(api, dest) == stored(api, topic)


def test_a_dry_run_of_an_import_only_counts(run: Run, api: Topics, tmp_path: Path) -> None:
    topic = fresh("dry")
    (tmp_path / "file").write_text('{"data":1}\n{"data":2}')
    (row,) = run("import", str(tmp_path / "file"), topic, "--dry-run").lines
    assert (row["records"], row["written"], row["dry_run"]) == (2, 0, True)
    assert topic not in api.topics(topic)


def test_parquet_has_columns_for_other_tools(run: Run, api: Topics, tmp_path: Path) -> None:
    topic = fresh("cols")
    api.append(topic, [{"data": {"a": 1}, "tag": "t"}])
    run("export", topic, "-o", str(tmp_path / "a.parquet"))
    (row,) = pq.read_table(tmp_path / "a.parquet").to_pylist()
    assert (row["topic"], row["seq"], row["tag"], row["meta"]) == (topic, 1, "t", None)
    assert msgspec.json.decode(row["data"]) == {"a": 1}
    assert row["ts"].tzinfo is not None


def test_without_pyarrow_parquet_is_explained(
    run: Run, api: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = fresh("none")
    api.create(topic)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    outcome = run("export", topic, "-o", str(tmp_path / "a.parquet"))
    assert outcome.code == exit_codes.USAGE
    assert "pip install pyarrow" in outcome.err
    (tmp_path / "b").write_bytes(b"PAR1")
    assert "pip install pyarrow" in run("import", str(tmp_path / "b"), topic).err


def test_a_file_that_only_looks_like_parquet_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"PAR1 and nothing else of it")
    outcome = run("import", str(tmp_path / "b"), fresh("none"))
    assert outcome.code == exit_codes.ERROR
    assert "Parquet" in outcome.err


def test_a_pipe_carries_an_export_into_an_import(
    environment: dict[str, str], server: ServerProcess, api: Topics
) -> None:
    source, dest = fresh("pipe"), fresh("pipe")
    api.append_json(source, AWKWARD)
    environment["TOPICS_URL"] = server.url
    read = piped(environment, "export", source)
    assert (read.code, read.err) == (exit_codes.OK, ""), "no bar in a pipe"
    wrote = piped(environment, "import", "-", dest, stdin=read.out)
    assert (wrote.code, wrote.lines[0]["written"], wrote.err) == (exit_codes.OK, 5, "")
    assert stored(api, dest) == stored(api, source)


def test_a_terminal_shows_an_export_that_cannot_steer_it(
    environment: dict[str, str], server: ServerProcess, api: Topics, tmp_path: Path
) -> None:
    topic = fresh("tty")
    api.append_json(topic, AWKWARD)
    environment["TOPICS_URL"] = server.url
    code, shown = on_terminal(environment, "export", topic)
    assert code == exit_codes.OK
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    assert "\\u009b" in shown, "still the same JSON"
    code, shown = on_terminal(environment, "export", topic, "-o", str(tmp_path / "f"))
    assert "exporting" in shown, "the bar"
    code, shown = on_terminal(environment, "export", topic, "--format", "parquet")
    assert code == exit_codes.USAGE


@pytest.fixture
def killed_import(environment: dict[str, str], server: ServerProcess) -> Callable[[str, str], None]:
    """Start a real import and kill it while it writes."""

    def begin(file: str, topic: str) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "topics", "import", file, topic]
        child = subprocess.Popen(
            command,
            env={**environment, "TOPICS_URL": server.url},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with Topics(server.url) as api:
            api.diff(topic, wait_ms=int(DEADLINE_S * 1000))
        os.kill(child.pid, signal.SIGKILL)
        child.wait(DEADLINE_S)

    return begin


def test_an_import_that_is_killed_is_completed_by_the_next(
    run: Run, api: Topics, tmp_path: Path, killed_import: Callable[[str, str], None]
) -> None:
    topic = fresh("killed")
    api.create(topic)
    file = tmp_path / "file"
    file.write_text("".join(f'{{"data":{n}}}\n' for n in range(60_000)))
    killed_import(str(file), topic)
    assert api.state(topic).count > 0
    assert run("import", str(file), topic).code == exit_codes.OK
    assert [int(data) for *_, data in stored(api, topic)] == list(range(60_000))
