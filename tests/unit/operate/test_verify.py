"""What verify says of every kind of damage, and of what only looks like it."""

import struct
from pathlib import Path

import pytest
from tests.unit.operate.conftest import TOPIC, Place, flip, records

from topics.embedded import Log
from topics.errors import ConfigError, UnknownFormat
from topics.operate.verify import measure, verify

IDX_ENTRY = 20
SEQ_OFFSET = 13


def test_a_directory_that_was_stopped_cleanly_is_healthy(stopped: Place) -> None:
    before = stopped.bytes_of_all_files()
    report = stopped.verify()
    assert report.healthy
    assert {file.verdict for file in report.files} == {"ok"}
    assert [(t.name, t.verdict, t.earliest_seq, t.head_seq) for t in report.topics] == [
        ("orders", "ok", 1, 50)
    ]
    assert report.segment_records == 50
    assert stopped.bytes_of_all_files() == before, "verify changes nothing"


def test_every_file_has_a_verdict(stopped: Place) -> None:
    told = {file.path for file in stopped.verify().files}
    there = {path.relative_to(stopped.data).as_posix() for path in stopped.bytes_of_all_files()}
    no_content = {".topics.lock", "meta/STOPPED", "meta/reserve"}
    assert there - told == no_content, "they say nothing of what is stored"


def test_a_killed_process_leaves_a_healthy_directory(killed: Place) -> None:
    report = killed.verify()
    assert report.healthy
    assert report.topics[0].head_seq == 50


def test_the_meter_hears_of_every_byte(stopped: Place) -> None:
    heard: list[int] = []
    verify(stopped.disk, meter=heard.append)
    assert sum(heard) == measure(stopped.disk)


# Segments.


@pytest.mark.parametrize("offset", [0, 4, 5, SEQ_OFFSET, 21, 33, 40, 48])
def test_a_flipped_bit_in_a_frame_is_named_with_its_offset_and_seq(
    stopped: Place, offset: int
) -> None:
    size = stopped.segment(11).stat().st_size // 10
    flip(stopped.segment(11), 3 * size + offset)
    file = stopped.file(f"{TOPIC}/{stopped.segment(11).name}")
    assert (file.verdict, file.kind) == ("damaged", "segment")
    assert [(f.offset, f.first_seq, f.last_seq) for f in file.findings] == [(3 * size, 14, 14)]
    assert list(stopped.verdicts()) == [file.path]


def test_damage_behind_damage_is_found_too(stopped: Place) -> None:
    size = stopped.segment(11).stat().st_size // 10
    for frame in (0, 4, 9):
        flip(stopped.segment(11), frame * size + 40)
    file = stopped.file(f"{TOPIC}/{stopped.segment(11).name}")
    assert [finding.first_seq for finding in file.findings] == [11, 15, 20]


def test_a_delete_flag_that_is_neither_live_nor_deleted_is_damage(stopped: Place) -> None:
    size = stopped.segment(1).stat().st_size // 10
    flip(stopped.segment(1), 2 * size - 1)
    (finding,) = stopped.file(f"{TOPIC}/{stopped.segment(1).name}").findings
    assert finding.message == "the delete flag is 0x01, which reads as live"
    assert (finding.offset, finding.first_seq) == (2 * size - 1, 2)


@pytest.mark.parametrize(
    ("byte", "words"),
    [
        (0, "bytes at"),
        (4, "bytes at"),
        (8, "says time"),
        (16, "has flags"),
        (19, "does not follow the one before it"),
    ],
)
def test_a_flipped_bit_in_an_index_entry_is_named(stopped: Place, byte: int, words: str) -> None:
    flip(stopped.segment(11, "idx"), 5 * IDX_ENTRY + byte)
    file = stopped.file(f"{TOPIC}/{stopped.segment(11, 'idx').name}")
    assert file.verdict == "damaged"
    assert any(words in finding.message for finding in file.findings)
    assert {f.offset for f in file.findings} <= {5 * IDX_ENTRY, 6 * IDX_ENTRY}
    assert list(stopped.verdicts()) == [file.path], "the data is still good"


def test_an_index_that_says_deleted_alone_is_damage(stopped: Place) -> None:
    flip(stopped.segment(11, "idx"), 5 * IDX_ENTRY + 16, bit=8)
    (finding,) = stopped.file(f"{TOPIC}/{stopped.segment(11, 'idx').name}").findings
    assert finding.message == "the entry says deleted, the frame says otherwise"
    assert finding.first_seq == 16


@pytest.mark.parametrize("kind", ["data", "idx"])
@pytest.mark.parametrize("first_seq", [1, 21, 41])
def test_a_missing_segment_file_is_missing(stopped: Place, kind: str, first_seq: int) -> None:
    path = stopped.segment(first_seq, kind)
    path.unlink()
    report = stopped.verify()
    assert not report.healthy
    assert stopped.verdicts() == {f"{TOPIC}/{path.name}": "missing"}
    uncovered = [] if kind == "idx" else [(first_seq, first_seq + 9)]
    assert report.topics[0].uncovered == uncovered


def test_a_missing_pair_is_told_by_the_seqs_that_nobody_holds(stopped: Place) -> None:
    stopped.segment(21).unlink()
    stopped.segment(21, "idx").unlink()
    report = stopped.verify()
    assert not report.healthy
    assert report.topics[0].uncovered == [(21, 30)]
    assert report.topics[0].findings[0].message == "no file holds these seqs"


@pytest.mark.parametrize("cut", [1, 60])
@pytest.mark.parametrize("first_seq", [11, 41])
def test_a_cut_data_file_is_damaged(stopped: Place, first_seq: int, cut: int) -> None:
    path = stopped.segment(first_seq)
    path.write_bytes(path.read_bytes()[:-cut])
    assert stopped.verdicts() == {f"{TOPIC}/{path.name}": "damaged"}


@pytest.mark.parametrize("first_seq", [11, 41])
def test_a_data_file_cut_between_frames_is_damaged(stopped: Place, first_seq: int) -> None:
    path = stopped.segment(first_seq)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert stopped.verdicts() == {f"{TOPIC}/{path.name}": "damaged"}


@pytest.mark.parametrize("cut", [1, 20, 100])
@pytest.mark.parametrize("first_seq", [11, 41])
def test_a_cut_index_is_damaged(stopped: Place, first_seq: int, cut: int) -> None:
    path = stopped.segment(first_seq, "idx")
    path.write_bytes(path.read_bytes()[:-cut])
    verdicts = stopped.verdicts()
    assert verdicts == {f"{TOPIC}/{path.name}": "damaged"}


@pytest.mark.parametrize("kinds", [["data"], ["idx", "data"]])
def test_two_swapped_segments_are_both_damaged(stopped: Place, kinds: list[str]) -> None:
    for kind in kinds:
        _swap(stopped.segment(11, kind), stopped.segment(31, kind))
    verdicts = stopped.verdicts()
    assert verdicts[f"{TOPIC}/{stopped.segment(11).name}"] == "damaged"
    assert verdicts[f"{TOPIC}/{stopped.segment(31).name}"] == "damaged"
    (finding,) = stopped.file(f"{TOPIC}/{stopped.segment(31).name}").findings
    assert finding.message == "frames of older seqs in a file that starts at seq 31"
    assert (finding.first_seq, finding.last_seq) == (11, 20)


def test_two_swapped_indexes_are_both_damaged(stopped: Place) -> None:
    with stopped.open() as log:
        log.delete("orders", match=["tag", "Eq", "g:1"])
        log.checkpoint()
    stopped.clock.advance_ms(5)
    with stopped.open() as log:
        log.append("orders", records(51, 70))
        log.checkpoint()
    _swap(stopped.segment(11, "idx"), stopped.segment(51, "idx"))
    assert set(stopped.verdicts()) == {
        f"{TOPIC}/{stopped.segment(first, 'idx').name}" for first in (11, 51)
    }


def test_frames_of_another_topic_are_damage(place: Place) -> None:
    with place.open() as log:
        for name in ("a", "b"):
            log.append(name, records(1, 10))
        log.checkpoint()
    mine, other = place.segment(1), place.data / TOPIC.replace("1", "2") / place.segment(1).name
    mine.write_bytes(other.read_bytes())
    (finding,) = place.file(f"{TOPIC}/{mine.name}").findings
    assert finding.message == "frames of topic 2 in a file of topic 1"


def test_a_rewritten_segment_is_healthy(stopped: Place) -> None:
    with stopped.open(compact_dead_ratio=0.1) as log:
        log.delete("orders", match=["tag", "Eq", "g:1"])
        log.checkpoint()
    assert stopped.segment(1).stat().st_size < stopped.segment(11, "idx").stat().st_size * 5
    assert stopped.verify().healthy


def test_a_cut_rewrite_is_torn_because_the_next_start_builds_the_index(stopped: Place) -> None:
    old = stopped.segment(1, "idx").read_bytes()
    with stopped.open(compact_dead_ratio=0.1) as log:
        log.delete("orders", match=["tag", "Eq", "g:1"])
        log.checkpoint()
    deleted = bytearray(old)
    for entry in (0, 5):
        deleted[entry * IDX_ENTRY + 16] |= 8
    stopped.segment(1, "idx").write_bytes(deleted)
    assert stopped.verdicts() == {
        f"{TOPIC}/{stopped.segment(1).name}": "torn",
        f"{TOPIC}/{stopped.segment(1, 'idx').name}": "torn",
    }
    assert stopped.verify().healthy


def test_what_a_cut_checkpoint_left_is_torn_or_stray(killed: Place) -> None:
    with killed.segment(11).open("ab") as data:
        data.write(b"half a frame")
    (killed.data / TOPIC / "seg-0000000000000021.data").write_bytes(b"unfinished")
    assert killed.verify().healthy
    assert killed.verdicts() == {
        f"{TOPIC}/seg-0000000000000011.data": "torn",
        f"{TOPIC}/seg-0000000000000011.idx": "torn",
        f"{TOPIC}/seg-0000000000000021.data": "stray",
    }


def test_deletes_that_wait_on_the_log_excuse_flags_that_differ(place: Place) -> None:
    log = place.open()
    log.append("orders", records(1, 20))
    log.checkpoint()
    log.delete("orders", match=["tag", "Eq", "g:1"])
    log.engine.abandon()
    flip(place.segment(1, "idx"), 16, bit=8)
    assert place.verify().healthy


# The log.


def test_damage_in_the_middle_of_the_log_is_named_with_its_offset(killed: Place) -> None:
    number, offset = _place_of_seq(killed, 32)
    flip(killed.wal(number), offset + 40)
    file = killed.file(f"wal/{killed.wal(number).name}")
    assert (file.verdict, file.kind) == ("damaged", "wal")
    assert [finding.offset for finding in file.findings] == [offset]


def test_zeros_in_the_middle_of_the_log_are_damage(killed: Place) -> None:
    number, offset = _place_of_seq(killed, 32)
    content = bytearray(killed.wal(number).read_bytes())
    content[offset : offset + 30] = bytes(30)
    killed.wal(number).write_bytes(content)
    assert killed.verdicts() == {f"wal/{killed.wal(number).name}": "damaged"}


def test_a_torn_tail_is_told_and_is_no_damage(killed: Place) -> None:
    number, offset = _place_of_seq(killed, 50)
    flip(killed.wal(number), offset + 40)
    report = killed.verify()
    assert report.healthy
    (finding,) = killed.file(f"wal/{killed.wal(number).name}").findings
    assert finding.offset == offset
    assert finding.message.endswith("the torn tail of a crash, cut off by the next start")
    assert report.topics[0].head_seq == 45, "the torn batch ends before it began"


def test_after_a_clean_stop_no_damage_passes_as_a_torn_tail(stopped: Place) -> None:
    number = max(int(path.name[4:24]) for path in stopped.data.glob("wal/wal-*.log"))
    content = stopped.wal(number).read_bytes().rstrip(b"\0")
    stopped.wal(number).write_bytes(content[:-1])
    assert stopped.verdicts() == {f"wal/{stopped.wal(number).name}": "damaged"}


def test_a_missing_log_file_is_missing(place: Place) -> None:
    numbers = _many_log_files(place)
    for number in (numbers[1], numbers[-1]):
        content = place.wal(number).read_bytes()
        place.wal(number).unlink()
        assert place.verdicts()[f"wal/{place.wal(number).name}"] == "missing"
        assert not place.verify().healthy
        place.wal(number).write_bytes(content)
    assert place.verify().healthy


def test_a_log_whose_start_is_gone_is_missing_it(killed: Place) -> None:
    number = min(int(path.name[4:24]) for path in killed.data.glob("wal/wal-*.log"))
    killed.wal(number).unlink()
    assert killed.verdicts()[f"wal/{killed.wal(number).name}"] == "missing"


def test_log_files_of_two_shards_that_were_swapped_are_damaged(place: Place) -> None:
    with place.open(wal_shards=2) as log:
        for name in ("a", "b"):
            log.append(name, records(1, 10))
        log.checkpoint()
    name = place.wal().name
    _swap(place.data / "wal/shard-00" / name, place.data / "wal/shard-01" / name)
    verdicts = place.verdicts()
    assert verdicts[f"wal/shard-00/{name}"] == verdicts[f"wal/shard-01/{name}"] == "damaged"


def test_every_shard_is_checked(place: Place) -> None:
    with place.open(wal_shards=3) as log:
        for name in ("a", "b", "c"):
            log.append(name, records(1, 10))
    report = place.verify()
    assert report.healthy
    assert len([file for file in report.files if file.kind == "wal"]) == 3


# Snapshots, format, tags, tiers.


def test_a_damaged_snapshot_is_named_and_the_other_one_serves(stopped: Place) -> None:
    older, newest = stopped.snapshots()
    for path in (older, newest):
        content = path.read_bytes()
        flip(path, 40)
        report = stopped.verify()
        assert stopped.verdicts() == {f"meta/{path.name}": "damaged"}
        assert report.topics[0].verdict == "ok"
        path.write_bytes(content)


def test_without_any_snapshot_segments_of_unknown_topics_are_damage(stopped: Place) -> None:
    for path in stopped.snapshots():
        flip(path, 40)
    for path in stopped.data.glob("wal/wal-*.log"):
        path.unlink()
    assert stopped.verdicts()[TOPIC] == "damaged"


@pytest.mark.parametrize(
    ("content", "verdict"), [(None, "missing"), (b"tupics 1\n", "damaged"), (b"", "damaged")]
)
def test_a_bad_format_file_is_damage(stopped: Place, content: bytes | None, verdict: str) -> None:
    path = stopped.data / "meta/FORMAT"
    path.unlink() if content is None else path.write_bytes(content)
    assert stopped.verdicts() == {"meta/FORMAT": verdict}


def test_a_directory_of_another_version_is_refused(stopped: Place) -> None:
    (stopped.data / "meta/FORMAT").write_bytes(b"topics 7\n")
    with pytest.raises(UnknownFormat, match="use the version that wrote it"):
        stopped.verify()


def test_a_damaged_tag_run_is_damage(stopped: Place) -> None:
    run = next(iter(sorted((stopped.data / TOPIC).glob("tags-*.run"))))
    flip(run, 30)
    assert stopped.verdicts() == {f"{TOPIC}/{run.name}": "damaged"}


def test_a_tag_run_of_other_records_lacks_tags(stopped: Place) -> None:
    runs = sorted((stopped.data / TOPIC).glob("tags-*.run"))
    _swap(runs[0], runs[1])
    report = stopped.verify()
    bad = [file for file in report.files if file.is_bad]
    assert [file.path for file in bad] == [f"{TOPIC}/{run.name}" for run in runs[:2]]
    assert all("lacks tags" in file.findings[0].message for file in bad)


def test_both_tiers_are_checked(place: Place) -> None:
    with _tiered(place) as log:
        log.engine.relocate()
        log.delete("orders", match=["tag", "Eq", "g:1"])
    assert place.verify().healthy
    path = place.cold / TOPIC / "seg-0000000000000001.data"
    flip(path, 45)
    (bad,) = [file for file in place.verify().files if file.is_bad]
    assert (bad.path, bad.tier, bad.findings[0].first_seq) == (f"{TOPIC}/{path.name}", "cold", 1)


def test_the_hot_index_of_a_cold_segment_is_needed(place: Place) -> None:
    with _tiered(place) as log:
        log.engine.relocate()
    place.segment(1, "idx").unlink()
    bad = [(file.path, file.tier, file.verdict) for file in place.verify().files if file.is_bad]
    assert bad == [(f"{TOPIC}/seg-0000000000000001.idx", "hot", "missing")]


def test_a_cold_tier_that_was_not_named_is_asked_for(place: Place) -> None:
    with _tiered(place) as log:
        log.engine.relocate()
    with pytest.raises(ConfigError, match="4 segments are in the cold tier: name its folder"):
        verify(place.disk)


def test_an_evicted_topic_is_healthy(place: Place) -> None:
    with place.open() as log:
        log.create("orders", cap_records=15)
        for first in range(1, 61, 10):
            log.append("orders", records(first, first + 9))
            log.checkpoint()
    report = place.verify()
    assert report.healthy
    assert report.topics[0].earliest_seq == 46


# How the places are made.


def _swap(one: Path, other: Path) -> None:
    first, second = one.read_bytes(), other.read_bytes()
    assert first != second
    one.write_bytes(second)
    other.write_bytes(first)


def _place_of_seq(place: Place, seq: int) -> tuple[int, int]:
    """Return file number and offset of the Append frame of a seq."""
    header = struct.pack("<QQ", 1, seq)
    for path in sorted(place.data.glob("wal/wal-*.log")):
        found = path.read_bytes().find(header)
        if found >= 0:
            return int(path.name[4:24]), found - 6
    raise AssertionError(f"seq {seq} is not on the log")


def _many_log_files(place: Place) -> list[int]:
    log = place.open(wal_file_bytes=4096)
    log.create("orders", durability="fsync")
    for first in range(1, 201, 5):
        log.append("orders", records(first, first + 4))
    log.engine.abandon()
    numbers = sorted(int(path.name[4:24]) for path in place.data.glob("wal/wal-*.log"))
    assert len(numbers) > 3
    return numbers


def _tiered(place: Place) -> Log:
    log = place.open(cold_dir=str(place.cold), hot_retain_segments=1)
    log.append("orders", records(1, 50))
    log.checkpoint()
    return log
