"""Open files: those of segments that are sealed or gone, and of a closed log, are closed at once.

Nothing waits for the garbage collector: a file that was removed and is still open keeps its room on
the disk, and whoever closes it last waits until that is given back.
"""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from topics.config import ServerConfig
from topics.embedded import Log
from topics.limits import KIB

OPEN = Path("/proc/self/fd")

pytestmark = pytest.mark.skipif(not OPEN.exists(), reason="only Linux names the files of a process")


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def open_below(root: Path) -> list[str]:
    found = []
    for link in OPEN.iterdir():
        try:
            target = str(link.readlink())
        except FileNotFoundError:  # that of the listing itself
            continue
        if target.startswith(str(root)):
            found.append(target)
    maps = Path("/proc/self/maps").read_text()
    return found + [line for line in maps.splitlines() if str(root) in line]


def filled(path: Path) -> Log:
    """Return a log with a topic of ten segments of four records and an active one."""
    config = ServerConfig(
        data_dir=str(path), wal_shards=1, wal_file_bytes=64 * KIB, segment_max_events=4
    )
    log = Log(config, background=False)
    log.create("t", durability="fsync")
    for i in range(41):
        log.append("t", [{"data": i}])
    log.checkpoint()
    return log


def test_a_sealed_segment_has_no_open_files(tmp_path: Path) -> None:
    with filled(tmp_path):
        names = sorted(Path(name).name for name in open_below(tmp_path) if "/seg-" in name)
        assert names == ["seg-0000000000000041.data", "seg-0000000000000041.idx"]


def test_a_deleted_topic_has_no_open_files(tmp_path: Path) -> None:
    with filled(tmp_path) as log:
        assert len(log.diff("t").records) == 41  # every segment is mapped
        assert len([name for name in open_below(tmp_path) if "/seg-" in name]) > 20
        log.drop("t")
        assert not [name for name in open_below(tmp_path) if "/seg-" in name]


def test_an_evicted_segment_has_no_open_files(tmp_path: Path) -> None:
    with filled(tmp_path) as log:
        log.diff("t")
        log.create("t", durability="fsync", cap_records=5)
        log.checkpoint()
        left = {Path(name.split()[-1]).name for name in open_below(tmp_path) if "/seg-" in name}
        assert "(deleted)" not in " ".join(open_below(tmp_path))
        assert left
        assert min(left) >= "seg-0000000000000033"


def test_a_closed_log_has_no_open_files(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.diff("t")
    log.delete("t", before_seq=7)
    log.close()
    assert open_below(tmp_path) == []


def test_a_reader_keeps_what_it_reads(tmp_path: Path) -> None:
    with filled(tmp_path) as log:
        segment = log.engine.topic("t").segments()[0]
        view = segment.view(0, 4)
        log.drop("t")
        assert bytes(view.buffer[:1])  # the bytes are still there
        assert len(view.idx) == 80


def test_deleting_here_and_there_keeps_few_files_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled(tmp_path) as log:
        maps = log.engine.topic("t").segments()[0].maps
        maps.release_all()
        monkeypatch.setattr(maps, "_most", 4)  # two segments with a map and a file
        for seq in range(1, 40, 4):
            log.engine.topic("t").apply_delete_seqs([seq])
        found = {Path(name).name for name in open_below(tmp_path) if name.endswith(".idx")}
        assert sorted(found) == ["seg-0000000000000033.idx", "seg-0000000000000037.idx"]
    assert open_below(tmp_path) == []


def test_a_segment_that_moved_away_has_no_open_file_for_its_flags(tmp_path: Path) -> None:
    hot = tmp_path / "hot"
    config = ServerConfig(
        data_dir=str(hot),
        cold_dir=str(tmp_path / "cold"),
        wal_shards=1,
        wal_file_bytes=64 * KIB,
        segment_max_events=4,
        hot_retain_segments=0,
    )
    with Log(config, background=False) as log:
        log.create("t", durability="fsync")
        log.append("t", [{"data": i} for i in range(9)])
        log.checkpoint()
        log.engine.topic("t").apply_delete_seqs([2])
        assert [name for name in open_below(hot) if name.endswith("1.idx")] != []
        log.engine.checkpoint()
        log.engine.relocate()
        assert {s.tier for s in log.engine.topic("t").segments() if s.sealed} == {"cold"}
        assert [name for name in open_below(hot) if "1.data" in name] == []
