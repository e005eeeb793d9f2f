"""The log inside a process: the example of the README, its errors, its bytes, its threads."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

import topics
from topics.config import ServerConfig
from topics.embedded import Log
from topics.errors import (
    BatchTooLarge,
    Closed,
    ConfigError,
    CorruptData,
    DirectoryLocked,
    DiskFailed,
    DiskFull,
    LimitReached,
    RecordTooLarge,
    RequestError,
    ShardReadOnly,
    TopicExistsIncompatible,
    TopicFull,
    TopicNotEmpty,
    TopicNotFound,
    TopicsError,
    UnknownFormat,
)
from topics.limits import KIB
from topics.storage.disk.reserve import AGAIN_S
from topics.testing.hostile_disk import HostileDisk
from topics.testing.hostile_faults import NO_FAULTS, FaultPlan
from topics.testing.manual_clock import ManualClock

DEADLINE_S = 30.0
TINY = ServerConfig(wal_shards=1, wal_file_bytes=4 * KIB, segment_max_events=4)


def open_tiny(disk: HostileDisk, **settings: Any) -> Log:  # noqa: ANN401 - of ServerConfig
    config = msgspec.structs.replace(TINY, **settings)
    return Log(config, disk=disk, clock=ManualClock(), background=False)


@pytest.fixture
def disk() -> HostileDisk:
    return HostileDisk()


@pytest.fixture
def log(disk: HostileDisk) -> Iterator[Log]:
    with open_tiny(disk) as log:
        yield log


def data_of(log: Log, topic: str, **reading: Any) -> list[Any]:  # noqa: ANN401 - of Log.diff
    return [record.data for record in log.diff(topic, **reading).records]


# The example.


def test_the_example_of_the_readme(tmp_path: Path) -> None:
    with topics.open(str(tmp_path / "topics-data")) as log:
        log.create("orders", durability="fsync", cap_records=1_000_000)
        log.append("orders", [{"data": {"id": 1}, "tag": "customer:7"}])
        page = log.diff("orders", from_seq=0, limit=500)
        assert [record.data for record in page.records] == [{"id": 1}]
        assert page.tombstone is None
        assert page.next_from_seq == 1
        assert page.caught_up
        assert log.delete("orders", match=["tag", "Glob", "customer:7*"]).deleted == 1
        assert log.diff("orders").records == []
    with topics.open(str(tmp_path / "topics-data")) as log:
        assert log.topics() == ["orders"]
        assert log.state("orders").head_seq == 1
        assert log.diff("orders").records == []


def test_a_second_log_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with (
        topics.open(str(tmp_path)),
        pytest.raises(DirectoryLocked, match="open"),
    ):
        topics.open(str(tmp_path))


# Bytes.


@pytest.mark.parametrize(
    "raw",
    [
        b"null",
        b"1.0",
        b"1.00",
        b"1e5",
        b"1E+05",
        b"-0",
        b"-0.0",
        b"123456789012345678901234567890",
        b'"\\u0041"',
        b'"\\/"',
        b'"\xc3\xa9"',
        b'"\\ud83d\\ude00"',
        b'{"b" : 1 ,  "a":2}',
        b"[ 1 , 2 ]",
        b'{"a":1,"a":2}',
        b'" spaces  inside "',
        b"[\n\t1\r\n]",
    ],
)  # fmt: skip - one screen
def test_data_and_meta_come_back_byte_for_byte(disk: HostileDisk, raw: bytes) -> None:
    meta = b'{ "k" : ' + raw + b" }"
    with open_tiny(disk) as log:
        log.append("a", [{"data": Raw(raw), "meta": Raw(meta)}])
        log.append_json("a", b'{"records": [ {"meta":%s,"data":%s} ]}' % (meta, raw))
        found = log.diff("a").records
        log.checkpoint()
        found += log.diff("a").records
    with open_tiny(disk) as log:
        found += log.diff("a").records
    assert len(found) == 6
    for record in found:
        assert bytes(record.data_json) == raw
        assert bytes(record.meta_json) == meta


def test_a_record_without_meta_has_none(log: Log) -> None:
    log.append("a", [{"data": 1}, {"data": 2, "meta": None}, {"data": 3, "meta": {}}])
    assert [record.meta for record in log.diff("a").records] == [None, None, {}]


def test_tags_and_nodes_come_back_as_text(log: Log) -> None:
    log.append(
        "a",
        [{"data": 1, "tag": 'q"\\\n\x7fé😀'}, {"data": 2, "node": "own"}, {"data": 3, "tag": ""}],
        node="batch",
    )
    found = log.diff("a").records
    assert [(r.tag, r.node) for r in found] == [
        ('q"\\\n\x7fé😀', "batch"),
        (None, "own"),
        ("", "batch"),
    ]
    assert [r.tag for r in log.diff("a", include_tags=False).records] == [None] * 3
    assert data_of(log, "a", node="batch") == [2]
    assert data_of(log, "a", node=["batch", "own"]) == []
    assert data_of(log, "a", match="") == [3]


# Errors.


def test_reading_and_deleting_need_the_topic(log: Log) -> None:
    for refused in (
        lambda: log.diff("nothing"),
        lambda: log.state("nothing"),
        lambda: log.delete("nothing", before_seq=1),
        lambda: log.append("nothing", [{"data": 1}], create=False),
    ):
        with pytest.raises(TopicNotFound, match="topic 'nothing' does not exist"):
            refused()
    assert log.topics() == []
    assert log.drop("nothing") is False


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a b", "ä", "x" * 256])
def test_a_bad_name_is_refused_everywhere(log: Log, name: str) -> None:
    for refused in (
        lambda: log.create(name),
        lambda: log.append(name, [{"data": 1}]),
        lambda: log.diff(name),
        lambda: log.delete(name, before_seq=1),
        lambda: log.state(name),
        lambda: log.drop(name),
    ):
        with pytest.raises(RequestError, match="is not a topic name"):
            refused()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"cap_record": 3}, "unknown field 'cap_record': did you mean 'cap_records'?"),
        ({"cap_records": -1}, "cap_records must be 0"),
        ({"durability": "paper"}, "durability"),
        ({"ttl_ms": "soon"}, "ttl_ms"),
        ({"dead_letter": "a"}, "dead_letter may not be the topic itself"),
        ({"dead_letter": "no/name"}, "is not a topic name"),
    ],
)
def test_a_bad_topic_config_is_refused(log: Log, config: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as refused:
        log.create("a", **config)
    assert message in str(refused.value)
    assert log.topics() == []


def test_the_type_of_a_topic_cannot_change(log: Log) -> None:
    log.create("a")
    with pytest.raises(TopicExistsIncompatible, match="is of type 'log'"):
        log.create("a", type="queue")


@pytest.mark.parametrize(
    ("records", "options", "message"),
    [
        ([], {}, "records"),
        ([{"tag": "x"}], {}, "data"),
        ([{"data": {1, 2}}], {}, None),
        ([{"data": object()}], {}, "records must be JSON values"),
        ([{"data": 1, "tag": 7}], {}, "tag"),
        ([{"data": 1, "node": 7}], {}, "node"),
        ([{"data": 1, "meta": [1]}], {}, "meta"),
        ([{"data": 1}], {"idempotency_key": ""}, "idempotency_key must have 1 to 256"),
        ([{"data": 1}], {"idempotency_key": "k" * 257}, "idempotency_key must have 1 to 256"),
        ([{"data": 1}], {"producer_id": "p"}, "producer_id and producer_seq go together"),
        ([{"data": 1}], {"producer_seq": 1}, "producer_id and producer_seq go together"),
        ([{"data": 1}], {"producer_id": "é" * 65, "producer_seq": 1}, "1 to 128 bytes"),
        ([{"data": 1}], {"producer_id": "p", "producer_seq": -1}, "unsigned 64-bit"),
        ([{"data": 1}], {"producer_id": "p", "producer_seq": 2**64}, "unsigned 64-bit"),
    ],
)
def test_a_bad_write_is_refused_and_takes_no_seq(
    log: Log, records: list[dict[str, Any]], options: dict[str, Any], message: str | None
) -> None:
    log.create("a")
    if message is None:  # a set is an array to msgspec
        log.append("a", records, **options)
        return
    with pytest.raises(RequestError) as refused:
        log.append("a", records, **options)
    assert message in str(refused.value)
    assert log.append("a", [{"data": "next"}]).first_seq == 1


def test_limits_of_a_write(disk: HostileDisk) -> None:
    with open_tiny(disk, max_batch_records=2, max_record_bytes=20, max_tag_bytes=3) as log:
        with pytest.raises(BatchTooLarge):
            log.append("a", [{"data": 1}] * 3)
        with pytest.raises(RecordTooLarge):
            log.append("a", [{"data": "x" * 30}])
        with pytest.raises(RequestError, match="tag"):
            log.append("a", [{"data": 1, "tag": "long"}])
        assert log.topics() == [], "a refused write creates no topic"


def test_a_full_topic_refuses_and_a_batch_that_never_fits_says_so(log: Log) -> None:
    log.create("a", cap_records=2, discard="reject")
    log.append("a", [{"data": 1}])
    with pytest.raises(RecordTooLarge, match="larger than the whole cap"):
        log.append("a", [{"data": 1}] * 3)
    with pytest.raises(TopicFull, match="is full and rejects writes"):
        log.append("a", [{"data": 1}] * 2)
    assert log.append("a", [{"data": 2}]).first_seq == 2
    log.delete("a", before_seq=2)
    assert log.append("a", [{"data": 3}]).first_seq == 3


def test_a_topic_with_records_is_not_dropped_if_it_must_be_empty(log: Log) -> None:
    log.append("a", [{"data": 1}])
    with pytest.raises(TopicNotEmpty, match="still holds records"):
        log.drop("a", if_empty=True)
    log.delete("a", before_seq=2)
    assert log.drop("a", if_empty=True) is True


def test_the_number_of_topics_and_bytes_is_bounded(disk: HostileDisk) -> None:
    with open_tiny(disk, max_topics=1, max_total_bytes=10) as log:
        log.create("a")
        with pytest.raises(LimitReached, match="max_topics is 1"):
            log.create("b")
        log.create("a", cap_records=5)
        with pytest.raises(LimitReached, match="max_total_bytes is 10"):
            log.append("a", [{"data": "x" * 20}])
        assert log.append("a", [{"data": "x"}]).first_seq == 1


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({}, "needs before_seq, match, or both"),
        ({"before_seq": -1}, "before_seq must be 0 or more"),
        ({"before_seq": -1, "match": "x"}, "before_seq must be 0 or more"),
        ({"match": 7}, "match must be a tag"),
        ({"match": ["tag", "Glob", "a*b"]}, "one trailing star"),
    ],
)
def test_a_delete_must_say_what(log: Log, bad: dict[str, Any], message: str) -> None:
    log.append("a", [{"data": 1, "tag": "x"}])
    with pytest.raises(RequestError, match=message):
        log.delete("a", **bad)
    assert data_of(log, "a") == [1]


@pytest.mark.parametrize("match", [None, "x", ["tag", "Glob", "*"]])
def test_nothing_lies_before_a_given_0(log: Log, match: object) -> None:
    log.append("a", [{"data": n, "tag": "x"} for n in range(3)])
    deleted = log.delete("a", before_seq=0, match=match)
    assert (deleted.deleted, deleted.earliest_seq, deleted.count) == (0, 1, 3)
    assert data_of(log, "a") == [0, 1, 2]


def test_a_delete_by_tag_without_a_seq_has_no_bound(log: Log) -> None:
    log.append("a", [{"data": n, "tag": "xy"[n % 2]} for n in range(6)])
    assert log.delete("a", match="x").deleted == 3
    assert data_of(log, "a") == [1, 3, 5]


@pytest.mark.parametrize("bad", [{"from_seq": -1}, {"limit": -1}, {"max_batch_bytes": -1}])
def test_a_bad_cursor_is_refused(log: Log, bad: dict[str, Any]) -> None:
    log.append("a", [{"data": 1}])
    with pytest.raises(RequestError, match="must be 0 or more"):
        log.diff("a", **bad)


def test_a_closed_log_takes_nothing(disk: HostileDisk) -> None:
    log = open_tiny(disk)
    log.append("a", [{"data": 1}])
    log.close()
    for refused in (
        lambda: log.create("b"),
        lambda: log.append("a", [{"data": 2}]),
        lambda: log.delete("a", before_seq=2),
        lambda: log.drop("a"),
    ):
        with pytest.raises(Closed, match="the log is closed"):
            refused()
    log.close()


def test_a_closed_log_writes_nothing_also_where_a_write_would_first_make_room(
    disk: HostileDisk,
) -> None:
    log = open_tiny(disk, tail_cache_bytes=1 << 20, segment_max_events=1_000)
    for _ in range(2):
        log.append("a", [{"data": "x" * 600_000}])
    log.engine.abandon()
    before = disk.calls_made
    with pytest.raises(Closed, match="the log is closed"):
        log.append("a", [{"data": 2}])
    assert disk.calls_made == before


def test_a_topic_that_is_dropped_while_records_are_made_is_made_again(log: Log) -> None:
    log.append("a", [{"data": 1}])

    def records() -> Iterator[dict[str, Any]]:
        log.drop("a")
        yield {"data": 2}

    assert log.append("a", records()).created
    assert data_of(log, "a") == [2]


def test_a_failed_sync_makes_the_log_read_only_and_reads_go_on(disk: HostileDisk) -> None:
    log = open_tiny(disk)
    log.create("a", durability="fsync")
    log.append("a", [{"data": 1}])
    disk.arm(FaultPlan().fail(operation="sync_data"))
    with pytest.raises(DiskFailed):
        log.append("a", [{"data": 2}])
    for refused in (
        lambda: log.append("a", [{"data": 3}]),
        lambda: log.delete("a", before_seq=2),
        lambda: log.create("b"),
        log.sync,
    ):
        with pytest.raises(ShardReadOnly, match="takes no more writes"):
            refused()
    assert data_of(log, "a") == [1]
    assert log.state("a").head_seq == 1


def test_a_full_disk_refuses_the_write_and_takes_the_next(disk: HostileDisk) -> None:
    log = open_tiny(disk)
    log.append("a", [{"data": "x" * 3_000}])
    disk.arm(FaultPlan().fail(operation="allocate", error=DiskFull, forever=True))
    for _ in range(2):
        with pytest.raises(DiskFull):
            log.append("a", [{"data": "y" * 3_000}], idempotency_key="once")
    disk.arm(NO_FAULTS)
    log.engine.clock.sleep(AGAIN_S)
    again = log.append("a", [{"data": "z" * 3_000}], idempotency_key="once")
    assert (again.first_seq, again.deduped) == (2, False)
    assert [value[0] for value in data_of(log, "a")] == ["x", "z"]


def test_damage_of_a_segment_is_told_and_never_skipped(disk: HostileDisk) -> None:
    log = open_tiny(disk)
    log.append("a", [{"data": i} for i in range(4)])
    log.checkpoint()
    path = "topics/0000000000000001/seg-0000000000000001.data"
    disk.flip_bit(path, 8 * 37)
    with pytest.raises(CorruptData, match=path) as damage:
        log.diff("a")
    assert damage.value.segment == path


def test_an_unknown_format_refuses_to_start(disk: HostileDisk) -> None:
    open_tiny(disk).close()
    file = disk.open("meta/FORMAT")
    file.write_at(0, [b"topics 9\n"])
    with pytest.raises(UnknownFormat, match="use the version that wrote it"):
        open_tiny(disk)
    file.write_at(0, [b"topics 1\n"])
    open_tiny(disk).close()


# Reading on.


def test_pages_follow_each_other_to_the_head(log: Log) -> None:
    log.append("a", [{"data": i} for i in range(10)])
    cursor, seen = 0, []
    while True:
        page = log.diff("a", from_seq=cursor, limit=3)
        seen += [record.data for record in page.records]
        cursor = page.next_from_seq
        if page.caught_up:
            break
    assert seen == list(range(10))


def test_a_limit_is_clamped_and_zero_means_the_default(disk: HostileDisk) -> None:
    with open_tiny(disk, max_limit=300) as log:
        log.append("a", [{"data": i} for i in range(400)])
        assert log.diff("a", limit=0).count == 256
        assert log.diff("a", limit=1_000).count == 300


def test_a_page_stops_at_its_byte_budget_but_never_before_one_record(log: Log) -> None:
    log.append("a", [{"data": "x" * 100} for _ in range(10)])
    assert log.diff("a", max_batch_bytes=1).count == 1
    assert log.diff("a", max_batch_bytes=450).count in (3, 4)


# Threads.


class Crowd:
    """Threads that write, read and delete at once, and what went wrong with them."""

    writers, batches, batch = 6, 25, 4

    def __init__(self, log: Log) -> None:
        self.log = log
        self.errors: list[TopicsError | AssertionError] = []
        self._stop = threading.Event()

    def run(self) -> None:
        writing = [self._start(partial(self._write, writer)) for writer in range(self.writers)]
        others = [self._start(step) for step in (self._read, self._read, self._delete)]
        for thread in writing:
            thread.join(DEADLINE_S)
        self._stop.set()
        for thread in others:
            thread.join(DEADLINE_S)
        assert not any(thread.is_alive() for thread in [*writing, *others])

    def _start(self, step: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                step()
            except (TopicsError, AssertionError) as error:
                self.errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def _write(self, writer: int) -> None:
        for i in range(self.batches):
            for topic in ("f", "d"):
                records = [{"data": [writer, i, j], "tag": f"w{writer}"} for j in range(self.batch)]
                appended = self.log.append(topic, records)
                assert appended.last_seq - appended.first_seq == self.batch - 1

    def _read(self) -> None:
        while not self._stop.is_set():
            for topic in ("f", "d"):
                head_seq = self.log.state(topic).head_seq
                page = self.log.diff(topic, limit=1_000)
                seqs = [record.seq for record in page.records]
                assert seqs == sorted(seqs)
                assert page.head_seq >= head_seq

    def _delete(self) -> None:
        while not self._stop.is_set():
            self.log.delete("d", match="w0")
            self.log.checkpoint()


def test_many_threads_may_use_one_log(tmp_path: Path) -> None:
    config = ServerConfig(
        data_dir=str(tmp_path), segment_max_events=50, checkpoint_ms=5, snapshot_ms=20, sweep_ms=5
    )
    with Log(config) as log:
        log.create("f", durability="fsync")
        log.create("d", durability="disk")
        crowd = Crowd(log)
        crowd.run()
        assert crowd.errors == []
        assert log.last_error is None
        log.delete("d", match="w0")
        check_writers(log, "f", writers=6)
        check_writers(log, "d", writers=5)
    with Log(config) as log:
        check_writers(log, "f", writers=6)
        check_writers(log, "d", writers=5)


def check_writers(log: Log, topic: str, *, writers: int) -> None:
    """Every batch is whole, every writer's batches are in its own order."""
    seen: dict[int, list[tuple[int, int]]] = {}
    cursor, caught_up = 0, False
    while not caught_up:
        page = log.diff(topic, from_seq=cursor, limit=1_000)
        for record in page.records:
            writer, i, j = record.data
            seen.setdefault(writer, []).append((i, j))
        cursor, caught_up = page.next_from_seq, page.caught_up
    assert len(seen) == writers
    for order in seen.values():
        assert order == [(i, j) for i in range(Crowd.batches) for j in range(Crowd.batch)]
    assert log.state(topic).count == writers * Crowd.batches * Crowd.batch


def test_a_misspelt_setting_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean checkpoint_ms"):
        topics.open(str(tmp_path), chekpoint_ms=3)
    assert list(tmp_path.iterdir()) == []
