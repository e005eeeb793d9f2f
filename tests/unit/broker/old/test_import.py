"""An import: once is as good as twice, damage is told, nothing that is there is overwritten."""

import json
from collections.abc import Iterator

import pytest

from topics.broker.old import records
from topics.broker.old.files import Problem
from topics.broker.old.report import ImportReport
from topics.broker.old.run import import_broker
from topics.config import ServerConfig
from topics.embedded import Log
from topics.model.topic_config import TopicConfig
from topics.storage.disk.disk import Disk
from topics.testing.hostile_disk import HostileDisk
from topics.testing.hostile_faults import FaultPlan, PowerCut

CONFIG = ServerConfig(wal_shards=2, wal_file_bytes=65_536)


class Old:
    """The old broker's directory."""

    def __init__(self) -> None:
        self.disk = HostileDisk()
        self.told: list[str] = []

    def write(self, name: str, content: bytes | str) -> None:
        data = content.encode() if isinstance(content, str) else content
        self.disk.create(name).write_at(0, [data])

    def write_log(self, name: str, *values: str) -> None:
        self.write(name, "".join(f"{n}:{value}\n" for n, value in enumerate(values)))

    def write_offsets(self, group: str, **offsets: dict[str, int]) -> None:
        self.write("offsets.json", json.dumps({group: offsets}))

    def import_into(self, log: Log | None, *, dry_run: bool = False) -> ImportReport:
        self.told = []

        def tell(problem: Problem) -> None:
            self.told.append(str(problem))

        return import_broker(
            self.disk, log, limits=CONFIG, dry_run=dry_run, tell=tell, meter=lambda _: None
        )


@pytest.fixture
def old() -> Old:
    return Old()


def open_log(disk: Disk) -> Log:
    return Log(CONFIG, disk=disk, background=False)


@pytest.fixture
def log() -> Iterator[Log]:
    with open_log(HostileDisk()) as log:
        yield log


def values(log: Log, topic: str) -> list[object]:
    return [record.data for record in log.diff(topic, limit=1000).records]


def committed(log: Log, group: str) -> dict[tuple[str, int], int | None]:
    state = log.group_state(group)
    return {(found.topic, found.partition): found.committed for found in state.partitions}


def test_logs_become_partitions_and_offsets_the_progress_of_groups(old: Old, log: Log) -> None:
    old.write_log("orders-0.log", "created", "paid, in full", "")
    old.write_log("orders-2.log", "ü")
    old.write_log("other-0.log", "x")
    old.write_offsets("billing", orders={"0": 2, "2": 1})
    report = old.import_into(log)
    assert (report.problem_count, old.told) == (0, [])
    assert values(log, "orders-0") == ["created", "paid, in full", ""]
    assert values(log, "orders-1") == []
    assert values(log, "orders-2") == ["ü"]
    assert values(log, "other-0") == ["x"]
    assert [record.meta for record in log.diff("orders-0").records] == [
        {"broker_offset": n} for n in range(3)
    ]
    assert committed(log, "billing")["orders", 0] == 2
    assert committed(log, "billing")["orders", 2] == 1
    assert log.state("orders-0").config.durability == TopicConfig().durability
    assert [(file.file, file.imported) for file in report.files] == [
        ("orders-0.log", 3),
        ("orders-2.log", 1),
        ("other-0.log", 1),
    ]


def test_twice_is_once(old: Old, log: Log) -> None:
    old.write_log("orders-0.log", *map(str, range(2_500)))
    old.write_offsets("g", orders={"0": 7})
    old.import_into(log)
    state = log.state("orders-0")
    again = old.import_into(log)
    assert log.state("orders-0").head_seq == state.head_seq == 2_500
    assert [(file.imported, file.already_there) for file in again.files] == [(0, 2_500)]
    assert [offset.outcome for offset in again.offsets] == ["kept"]
    assert again.problem_count == 0


def test_what_the_old_broker_got_meanwhile_comes_with_the_next_run(old: Old, log: Log) -> None:
    old.write_log("orders-0.log", "a")
    old.import_into(log)
    old.write_log("orders-0.log", "a", "b")
    old.write_log("orders-3.log", "new")
    report = old.import_into(log)
    assert report.problem_count == 0
    assert values(log, "orders-0") == ["a", "b"]
    assert values(log, "orders-3") == ["new"]


def test_deleted_records_do_not_come_back(old: Old, log: Log) -> None:
    old.write_log("orders-0.log", "a", "b", "c")
    old.import_into(log)
    log.delete("orders-0", before_seq=4)
    assert old.import_into(log).files[0].already_there == 3
    assert values(log, "orders-0") == []


def test_an_import_cut_at_any_disk_call_is_finished_by_the_next(
    old: Old, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "BATCH_RECORDS", 2)
    old.write_log("orders-0.log", *"abcdefg")
    old.write_log("orders-1.log", *"xyz")
    old.write_offsets("g", orders={"0": 5, "1": 3})
    cuts = 0
    for call in range(10_000):
        disk = HostileDisk(plan=FaultPlan().cut_power(at_call=call))
        try:
            log = open_log(disk)
            old.import_into(log)
            log.close()
        except PowerCut:
            cuts += 1
        else:
            break
        with open_log(disk.power_cut(seed=call)) as log:
            report = old.import_into(log)
            assert report.problem_count == 0, old.told
            assert values(log, "orders-0") == list("abcdefg")
            assert values(log, "orders-1") == list("xyz")
            assert committed(log, "g") == {("orders", 0): 5, ("orders", 1): 3}
            # No gap: an offset of the old broker is one of ours.
            assert log.state("orders-0").head_seq == 7
    assert cuts > 10


def test_damage_is_told_line_by_line_and_offsets_still_mean_the_same_records(
    old: Old, log: Log
) -> None:
    old.write("orders-0.log", b"0:a\nbad\n2:c\n1:late\n3:\xff\n4:e\n5:cut")
    old.write("orders-x.log", b"0:a\n")
    old.write("offsets.json", json.dumps({"g": {"orders": {"0": 4}, "gone": {"0": 1}}}))
    report = old.import_into(log)
    assert old.told == [
        "orders-x.log: is not named <topic>-<n>.log",
        "orders-0.log:2: is not <offset>:<value>",
        "orders-0.log:4: offset 1 comes after offset 2",
        "orders-0.log:5: is not valid UTF-8",
        "orders-0.log:7: has no line break at its end: it was cut off",
        "offsets.json: group 'g', topic 'gone', partition 0: this partition was not imported",
    ]
    assert report.problem_count == 6
    assert [str(problem) for problem in report.problems] == old.told
    assert report.files[0].problems == 4
    assert values(log, "orders-0") == ["a", "c", "e"]
    # Offset 4 is the next to be read: behind "a" and "c".
    assert committed(log, "g") == {("orders", 0): 2}


def test_an_offset_beyond_the_end_is_told_and_the_end_is_taken(old: Old, log: Log) -> None:
    old.write_log("orders-0.log", "a", "b")
    old.write_offsets("g", orders={"0": 9})
    old.import_into(log)
    assert old.told == [
        "offsets.json: group 'g', topic 'orders', partition 0: "
        "offset 9 is beyond the end, 2 is taken"
    ]
    assert committed(log, "g") == {("orders", 0): 2}


def test_progress_is_never_turned_back(old: Old, log: Log) -> None:
    old.write_log("orders-0.log", *"abcde")
    old.write_offsets("g", orders={"0": 2})
    old.import_into(log)
    log.commit("g", {"orders": {0: 4}})
    report = old.import_into(log)
    assert committed(log, "g") == {("orders", 0): 4}
    assert [(offset.position, offset.outcome) for offset in report.offsets] == [(4, "kept")]


def test_a_group_that_has_members_is_left_to_them(old: Old, log: Log) -> None:
    old.write_log("orders-0.log", *"abc")
    old.import_into(log)
    log.join("g", member="m", topics=["orders"])
    old.write_offsets("g", orders={"0": 2})
    old.import_into(log)
    assert len(old.told) == 1
    assert "has members" in old.told[0]
    assert committed(log, "g")["orders", 0] in (None, 0)


def test_a_topic_that_was_not_imported_is_not_touched(old: Old, log: Log) -> None:
    log.append("plain", [{"data": 1}])
    log.create("spread", partitions=1)
    log.append("spread", [{"data": 1}])
    log.append("taken-1", [{"data": 1}])
    for name in ("plain-0.log", "spread-0.log", "taken-0.log", "taken-1.log", "fine-0.log"):
        old.write_log(name, "x")
    old.write_offsets("g", plain={"0": 1})
    report = old.import_into(log)
    assert old.told[:2] == [
        "plain-0.log: topic 'plain' is there already and has no partitions",
        "spread-0.log: topic 'spread' is there already and was not imported",
    ]
    assert [line.partition(":")[0] for line in old.told[2:]] == [
        "taken-0.log",
        "taken-1.log",
        "offsets.json",
    ]
    assert [file.file for file in report.files] == ["fine-0.log"]
    assert values(log, "plain") == values(log, "spread-0") == values(log, "taken-1") == [1]


def test_behind_what_others_wrote_nothing_is_added(old: Old, log: Log) -> None:
    old.write_log("orders-0.log", "a", "b")
    old.import_into(log)
    log.append("orders", [{"data": "new", "key": "k"}])
    assert old.import_into(log).problem_count == 0
    old.write_log("orders-0.log", "a", "b", "c")
    old.import_into(log)
    assert old.told == [
        "orders-0.log: offset 2 and what follows is new, but others have written to "
        "this partition since: it is not imported"
    ]
    assert values(log, "orders-0") == ["a", "b", "new"]


def test_an_empty_topic_that_is_there_is_filled(old: Old, log: Log) -> None:
    log.create("orders", partitions=5, durability="fsync")
    old.write_log("orders-1.log", "a")
    assert old.import_into(log).problem_count == 0
    assert values(log, "orders-1") == ["a"]
    assert len(log.engine.partitions_of("orders")) == 5


def test_a_value_that_is_too_large_as_json_is_told_alone(old: Old, log: Log) -> None:
    size = CONFIG.max_record_bytes
    old.write(
        "t-0.log", b"0:a\n1:" + b"\x01" * (size // 2) + b"\n2:" + b"x" * (size - 64) + b"\n3:b\n"
    )
    old.import_into(log)
    assert old.told == [f"t-0.log:2: as JSON it has more than {size} bytes"]
    sizes = [len(log.diff("t-0", from_seq=seq, limit=1).records[0].data) for seq in range(3)]
    assert sizes == [1, size - 64, 1]
    assert log.state("t-0").head_seq == 3


def test_a_dry_run_reads_all_and_writes_nothing(old: Old, log: Log) -> None:
    old.write("orders-0.log", b"0:a\nbad\n1:b\n")
    old.write_offsets("g", orders={"0": 2})
    for into in (None, log):
        report = old.import_into(into, dry_run=True)
        assert old.told == ["orders-0.log:2: is not <offset>:<value>"]
        assert [(file.imported, file.problems) for file in report.files] == [(2, 1)]
        assert [(offset.position, offset.outcome) for offset in report.offsets] == [(2, "set")]
    assert log.topics() == []
    assert log.groups() == []
    old.import_into(log)
    again = old.import_into(log, dry_run=True)
    assert [(file.imported, file.already_there) for file in again.files] == [(0, 2)]
