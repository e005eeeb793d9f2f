"""Cut the power under the copy at each of its calls: it is empty, refused, or whole."""

import pytest

from topics.config import ServerConfig
from topics.embedded import Log
from topics.errors import UnknownFormat
from topics.testing.crash_recorder import Hooks, RecordingDisk
from topics.testing.hostile_disk import HostileDisk

CONFIG = ServerConfig(wal_shards=2, wal_file_bytes=4096, segment_max_events=4)
SEEDS = (0, 1, 2, 3)
DATA = list(range(12))


@pytest.mark.crash
def test_a_backup_that_was_cut_off_is_never_taken_for_a_whole_one() -> None:
    target = HostileDisk()
    kept: list[HostileDisk] = []
    log = Log(CONFIG, disk=HostileDisk(), background=False)
    for topic in ("a", "b"):
        log.create(topic, durability="fsync")
        for n in DATA:
            log.append(topic, [{"data": n, "tag": "t"}])
    log.checkpoint()
    log.append("a", [{"data": "tail"}])
    hooks = Hooks(lambda: kept.append(target.copy()), lambda: None)
    log.engine.backup(RecordingDisk(target, hooks))
    log.close()
    kept.append(target.copy())
    found = {outcome(disk.copy().power_cut(seed)) for disk in kept[:-1] for seed in SEEDS}
    assert found <= {"empty", "refused", "whole"}
    assert "refused" in found
    assert {outcome(kept[-1].copy().power_cut(seed)) for seed in SEEDS} == {"whole"}
    assert len(kept) > 60, "the sweep has shrunk"


def outcome(disk: HostileDisk) -> str:
    try:
        log = Log(CONFIG, disk=disk, background=False)
    except UnknownFormat:
        return "refused"
    with log:
        if not log.topics():
            return "empty"
        found = [[record.data for record in log.diff(topic).records] for topic in ("a", "b")]
        return "whole" if found == [[*DATA, "tail"], DATA] else f"{found}"
