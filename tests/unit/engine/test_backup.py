"""A backup of a log that is in use: all of it, at one moment, whatever happens meanwhile."""

import threading
from collections.abc import Callable

import pytest
from tests.unit.engine.place import gap_of

from topics.config import ServerConfig
from topics.embedded import Log
from topics.engine import engine
from topics.errors import BackupExists, Closed, CorruptData, DiskFailed, DiskFull, UnknownFormat
from topics.operate.verify import verify
from topics.storage.disk.disk import Disk
from topics.testing.crash_recorder import Hooks, RecordingDisk
from topics.testing.hostile_disk import HostileDisk
from topics.testing.hostile_faults import FaultPlan

CONFIG = ServerConfig(
    wal_shards=3, wal_file_bytes=4096, segment_max_events=4, hot_retain_segments=1
)


def open_log(disk: Disk, cold: Disk | None = None) -> Log:
    return Log(CONFIG, disk=disk, cold_disk=cold, background=False)


def values(log: Log, topic: str) -> list[object]:
    found: list[object] = []
    page = log.diff(topic, limit=1000)
    while True:
        found += [record.data for record in page.records]
        if page.caught_up:
            return found
        page = log.diff(topic, from_seq=page.next_from_seq, limit=1000)


def fill(log: Log, topics: int = 4) -> None:
    for number in range(topics):
        for n in range(10):
            log.append(f"t{number}", [{"data": n, "tag": f"g{n % 3}"}])


def hooked(disk: HostileDisk, before_call: Callable[[], None]) -> RecordingDisk:
    return RecordingDisk(disk, Hooks(before_call, lambda: None))


def test_a_backup_is_the_log_as_it_is() -> None:
    target = HostileDisk()
    with open_log(HostileDisk()) as log:
        fill(log)
        log.checkpoint()
        log.append("t0", [{"data": "only on the log"}])
        log.delete("t1", match="g1")
        done = log.engine.backup(target)
        log.append("t0", [{"data": "too late"}])
        assert (done.topics, done.bytes > 0) == (4, True)
        assert done.segments >= 12
    assert verify(target.copy()).healthy
    with open_log(target.kill()) as restored:
        assert values(restored, "t0") == [*range(10), "only on the log"]
        assert values(restored, "t1") == [0, 2, 3, 5, 6, 8, 9]


def test_a_reader_ahead_of_a_restored_log_begins_anew() -> None:
    """What comes now gets seqs that it has seen: to go on at the head would pass it over."""
    target = HostileDisk()
    with open_log(HostileDisk()) as log:
        log.create("t0", durability="fsync")
        fill(log, topics=1)
        log.engine.backup(target)
        fill(log, topics=1)
        assert gap_of(log.diff("t0", from_seq=30)) == (21, 30, "beyond_head")
    with open_log(target) as restored:
        assert gap_of(restored.diff("t0", from_seq=20)) == (1, 10, "recreated")
    with open_log(target) as restored:
        assert gap_of(restored.diff("t0", from_seq=20)) == (1, 10, "recreated"), "ever after"


def test_what_a_power_cut_would_take_is_in_a_backup_and_survives_one() -> None:
    target = HostileDisk()
    with open_log(HostileDisk()) as log:
        fill(log)
        log.engine.backup(target)
    with open_log(target.power_cut(0)) as restored:
        assert values(restored, "t3") == list(range(10))


@pytest.mark.parametrize("passes", [1, 2])
def test_writes_deletes_drops_and_checkpoints_go_on_while_segments_are_copied(
    passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that happens before the last look is in the copy, as if it had stopped then."""
    monkeypatch.setattr(engine, "BACKUP_PASSES", passes)
    target = HostileDisk()
    log = open_log(HostileDisk())
    fill(log)
    log.checkpoint()
    steps = iter(range(100))

    def meddle() -> None:
        step = next(steps, None)
        if step is None:
            return
        log.append("t0", [{"data": 10 + step, "tag": "late"}])
        if step == 20:
            log.delete("t1", before_seq=8)
            log.drop("t2")
        if step < 30:
            # Twice each: else the older snapshot alone would hold the log.
            log.checkpoint()
            log.checkpoint()

    log.engine.backup(hooked(target, meddle))
    log.close()
    assert verify(target.copy()).healthy
    with open_log(target.kill()) as restored:
        assert restored.topics() == ["t0", "t1", "t3"]
        late = values(restored, "t0")
        assert late == list(range(len(late)))
        assert len(late) > 40
        assert values(restored, "t1") == [7, 8, 9]
        assert values(restored, "t3") == list(range(10))


def test_threads_that_write_all_the_while_find_their_acknowledged_records() -> None:
    log = Log(
        ServerConfig(
            wal_shards=3, wal_file_bytes=1 << 16, segment_max_events=50, checkpoint_ms=20,
            snapshot_ms=40,
        ),
        disk=HostileDisk(),
    )  # fmt: skip
    acked = [0, 0, 0]
    stopping = threading.Event()

    def write(number: int) -> None:
        while not stopping.wait(0.002):  # leave the processor to the backup
            log.append(f"t{number}", [{"data": acked[number], "tag": f"g{acked[number] % 5}"}])
            acked[number] += 1
            if acked[number] % 50 == 0:
                log.delete(f"t{number}", match="g3")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            before = list(acked)
            target = HostileDisk()
            log.engine.backup(target)
            assert verify(target.copy()).healthy
            with open_log(target.kill()) as restored:
                for number, count in enumerate(before):
                    kept = set(values(restored, f"t{number}")) if count else set()
                    assert {n for n in range(count) if n % 5 != 3} <= kept
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
        log.close()


def test_jobs_that_move_between_shards_are_in_a_backup_once() -> None:
    target = HostileDisk()
    with open_log(HostileDisk()) as log:
        log.create("dead")
        log.create("jobs", type="queue", max_deliveries=1, dead_letter="dead")
        log.append("jobs", [{"data": n} for n in range(9)])
        held = log.claim("jobs", node="w", max=6).jobs
        log.ack("jobs", [job.seq for job in held[:3]], node="w")
        log.nack("jobs", [job.seq for job in held[3:]], node="w")
        log.claim("jobs", node="w", max=1)
        log.engine.backup(target)
    assert verify(target.copy()).healthy
    with open_log(target.kill()) as restored:
        restored.engine.sweep_queues()
        found = [*values(restored, "dead"), *values(restored, "jobs")]
        assert sorted(found, key=str) == [3, 4, 5, 6, 7, 8]


def test_cold_segments_are_hot_ones_in_a_backup() -> None:
    target = HostileDisk()
    with open_log(HostileDisk(), HostileDisk()) as log:
        for n in range(20):
            log.append("t", [{"data": n, "tag": f"g{n}"}])
        log.checkpoint()
        assert log.engine.relocate() > 0
        log.delete("t", match="g1")
        log.engine.backup(target)
    assert verify(target.copy()).healthy
    with open_log(target.kill()) as restored:
        assert values(restored, "t") == [0, *range(2, 20)]
        assert restored.state("t").cold_segments == 0


def test_partitions_groups_routers_and_keys_are_in_a_backup() -> None:
    target = HostileDisk()
    with open_log(HostileDisk()) as log:
        log.create("orders", partitions=3, durability="fsync")
        log.append("orders", [{"key": f"user{n}", "data": n} for n in range(9)])
        log.engine.put_router("orders-0->copy", {"source": "orders-0", "dest": "copy"})
        joined = log.join("billing", member="c", topics=["orders"])
        polled = log.poll("billing", member="c", generation=joined.generation)
        committed = log.commit(
            "billing", polled.positions, member="c", generation=joined.generation
        ).committed
        log.append("plain", [{"data": 1}], idempotency_key="once")
        log.engine.backup(target)
        copied = values(log, "copy")
    assert verify(target.copy()).healthy
    with open_log(target.kill()) as restored:
        assert len(restored.state("orders").partitions or ()) == 3
        state = restored.group_state("billing")
        assert (state.lag_total, state.generation) == (0, joined.generation)
        assert {p.partition: p.committed for p in state.partitions} == committed["orders"]
        assert values(restored, "copy") == copied
        assert restored.append("plain", [{"data": 1}], idempotency_key="once").deduped


def test_a_place_that_holds_something_is_refused() -> None:
    target = HostileDisk()
    with open_log(HostileDisk()) as log:
        log.engine.backup(target)
        with pytest.raises(BackupExists):
            log.engine.backup(target)


def test_a_backup_that_finds_no_room_cannot_be_opened_and_hurts_nobody() -> None:
    target = HostileDisk(FaultPlan().fail(at_call=25, error=DiskFull))
    with open_log(HostileDisk()) as log:
        fill(log)
        with pytest.raises(DiskFull):
            log.engine.backup(target)
        log.append("t0", [{"data": 10}])
        log.drop("t1")
        log.checkpoint()
        log.engine.backup(HostileDisk())
    with pytest.raises(UnknownFormat, match="unfinished"):
        open_log(target.kill())


def test_a_log_that_is_closed_meanwhile_ends_its_backup() -> None:
    log = open_log(HostileDisk())
    fill(log)
    with pytest.raises(Closed):
        log.engine.backup(hooked(HostileDisk(), log.close))


def test_a_plain_copy_of_a_log_in_use_is_no_backup() -> None:
    """Its files are of several moments: here the log was trimmed between two of them."""
    source, target = HostileDisk(), HostileDisk()
    with open_log(source) as log:
        fill(log)
        log.checkpoint()
        copy_tree(source, target, "meta")
        for _ in range(3):
            fill(log)
            log.checkpoint()
        copy_tree(source, target, "wal")
        copy_tree(source, target, "topics")
    with pytest.raises(CorruptData, match="is missing"):
        open_log(target)


def copy_tree(source: HostileDisk, target: HostileDisk, path: str) -> None:
    try:
        content = source.read(path)
    except DiskFailed:  # a directory
        target.make_dir(path)
        for name in source.list(path):
            copy_tree(source, target, f"{path}/{name}")
    else:
        file = target.create(path)
        file.write_at(0, [content])
        file.close()
