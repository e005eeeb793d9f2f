"""A real process under load, to be killed: its writers tell over a pipe what they were promised.

`RealProcess` starts this module as a child; the child tells every write before it makes it and
after it was acknowledged:

    > TOPIC PRODUCER N           about to append record N of a producer
    < TOPIC PRODUCER N SEQ       acknowledged with this seq
    - TOPIC PRODUCER N           the record with this number was deleted, acknowledged
"""

import gc
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from random import Random
from typing import NamedTuple

import msgspec

from topics.config import ServerConfig
from topics.embedded import Log
from topics.errors import TopicsError
from topics.testing.crash_observe import Violation

CLASSES = {"sure": "fsync", "fast": "disk", "flood": "disk"}
PAD_BYTES = {"sure": 300, "fast": 300, "flood": 20_000}
PRODUCERS = 2
DELETE_EVERY = 17
START_DEADLINE_S = 30.0
READ_RECORDS = 1_000


def busy_config(directory: str) -> ServerConfig:
    """Return a config that makes the background work all the time."""
    return ServerConfig(
        data_dir=directory,
        wal_shards=2,
        wal_file_bytes=64 * 1024,
        segment_max_events=200,
        checkpoint_ms=40,
        checkpoint_bytes=256 * 1024,  # a flood for large records, which goes past the page cache
        snapshot_ms=60,
        snapshot_wal_bytes=128 * 1024,
        disk_sync_ms=20,
        sweep_ms=50,
    )


class Promises:
    """Everything the children of one directory were told, life after life."""

    def __init__(self) -> None:
        self.submitted: dict[tuple[str, str], int] = defaultdict(int)
        """Per topic and producer the highest number that was under way."""
        self.acked: dict[str, dict[int, tuple[str, int]]] = {topic: {} for topic in CLASSES}
        """Per topic: seq → producer and number."""
        self.deleted: dict[str, set[tuple[str, int]]] = {topic: set() for topic in CLASSES}
        self.deleting: dict[str, set[tuple[str, int]]] = {topic: set() for topic in CLASSES}
        self.power_was_cut = False
        self.lost: dict[str, set[int]] = {topic: set() for topic in CLASSES}
        """Acknowledged seqs of a `disk` topic that a power cut took and a tombstone told of."""

    def hear(self, line: bytes) -> None:
        if not line.endswith(b"\n"):
            return  # the kill cut it
        sign, topic, producer, n, *rest = line.decode().split()
        if sign == ">":
            self.submitted[topic, producer] = int(n)
        elif sign == "<":
            self.acked[topic][int(rest[0])] = producer, int(n)
        elif sign == "~":
            self.deleting[topic].add((producer, int(n)))
        else:
            self.deleted[topic].add((producer, int(n)))


class Found(NamedTuple):
    """One topic as a start found it."""

    records: dict[int, tuple[str, int]]
    gaps: list[tuple[int, int]]


class RealProcess:
    """A child that appends until it is killed."""

    def __init__(self, directory: str, promises: Promises, *, seed: int) -> None:
        self._promises = promises
        self._child = subprocess.Popen(
            [sys.executable, "-m", "topics.testing.real_process", directory, str(seed)]
            + [f"{t}/{p}={n}" for (t, p), n in promises.submitted.items()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for us alone
        )
        self.acks = 0
        self._power_goes = False
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def wait_for_acks(self, count: int) -> None:
        """Return when so many writes were acknowledged; raise where the child cannot."""
        deadline = time.monotonic() + START_DEADLINE_S
        while self.acks < count:
            if self._child.poll() is not None or time.monotonic() > deadline:
                self._child.kill()
                assert self._child.stderr is not None
                raise Violation(f"the child stopped: {self._child.stderr.read().decode()[-2000:]}")
            time.sleep(0.001)

    def power_goes(self) -> None:
        """Believe no promise from here on.

        The kernel is shut down while syncs are under way, and lets some of them report success
        although their blocks are gone: measured with a bare loop of pwrite and fdatasync, 3 of 120
        cuts took the last write that was told of.
        """
        self._power_goes = True

    def kill(self) -> None:
        """End it with SIGKILL and hear the rest of what it told."""
        self._child.kill()
        self._child.wait()
        self._listener.join()
        for pipe in (self._child.stdout, self._child.stderr):
            if pipe is not None:
                pipe.close()

    def _listen(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            if line.startswith((b"<", b"-")) and self._power_goes:
                continue
            self._promises.hear(line)
            self.acks += line.startswith(b"<")


def check_directory(directory: str, promises: Promises, *, power_was_cut: bool) -> dict[str, int]:
    """Start on what a dead child left, hold it against its promises; return the heads."""
    try:
        log = Log(busy_config(directory), background=False)
    except TopicsError as error:
        raise Violation(f"no start: {error!r}") from error
    heads = {}
    promises.power_was_cut |= power_was_cut
    for topic in log.topics():
        found = _read(log, topic)
        may_lose = power_was_cut and CLASSES[topic] == "disk"
        _check_topic(topic, found, promises, may_lose=may_lose)
        if not power_was_cut and found.gaps and not promises.power_was_cut:
            raise Violation(f"{topic}: a kill announces a loss: {found.gaps}")
        heads[topic] = log.state(topic).head_seq
        if heads[topic] < max(promises.acked[topic], default=0):
            raise Violation(f"{topic}: head {heads[topic]} is behind an acknowledged seq")
    log.engine.abandon()
    del log
    gc.collect()  # maps keep a file system busy
    return heads


def _check_topic(topic: str, found: Found, promises: Promises, *, may_lose: bool) -> None:
    gone = promises.deleted[topic] | promises.deleting[topic]
    for seq, written in promises.acked[topic].items():
        if seq in found.records:
            if found.records[seq] != written:
                raise Violation(f"{topic}: seq {seq} is {found.records[seq]}, not {written}")
        elif written not in gone and seq not in promises.lost[topic]:
            if not may_lose or not any(first <= seq <= last for first, last in found.gaps):
                raise Violation(f"{topic}: acknowledged seq {seq} {written} is lost, {found.gaps}")
            promises.lost[topic].add(seq)
    if CLASSES[topic] == "fsync" and found.gaps:
        raise Violation(f"{topic}: a loss is announced that was none: {found.gaps}")
    _check_order(topic, found, promises)


def _check_order(topic: str, found: Found, promises: Promises) -> None:
    newest: dict[str, int] = {}
    for seq, (producer, n) in sorted(found.records.items()):
        if n > promises.submitted[topic, producer]:
            raise Violation(f"{topic}: record {n} of {producer} was never submitted")
        if n <= newest.get(producer, 0):
            raise Violation(f"{topic}: record {n} of {producer} at seq {seq} is out of order")
        if (producer, n) in promises.deleted[topic]:
            raise Violation(f"{topic}: deleted record {n} of {producer} is back at seq {seq}")
        newest[producer] = n


def _read(log: Log, topic: str) -> Found:
    records: dict[int, tuple[str, int]] = {}
    gaps = []
    cursor = 0
    while True:
        page = log.diff(topic, from_seq=cursor, limit=READ_RECORDS)
        if page.tombstone is not None:
            gaps.append((page.tombstone.gap_from, page.tombstone.gap_to))
        for record in page.records:
            data = msgspec.json.decode(record.data_json)
            records[record.seq] = data["p"], data["n"]
        if page.caught_up:
            return Found(records, gaps)
        cursor = page.next_from_seq


# The child.


def _write_for_ever(log: Log, topic: str, producer: str, *, last_n: int, seed: int) -> None:
    chance = Random(f"{seed}/{topic}/{producer}")
    most = PAD_BYTES[topic]
    n = last_n
    while True:
        n += 1
        # A flood has no tags: only then it goes past the page cache.
        tag = f"{producer}:{n}" if topic != "flood" else None
        doomed = tag and n % DELETE_EVERY == 0
        _tell(f"> {topic} {producer} {n}")
        appended = log.append(
            topic,
            [{"data": {"p": producer, "n": n, "pad": "x" * chance.randint(0, most)}, "tag": tag}],
            producer_id=producer,
            producer_seq=n,
        )
        _tell(f"< {topic} {producer} {n} {appended.first_seq}")
        if doomed:
            _tell(f"~ {topic} {producer} {n}")
            log.delete(topic, match=["tag", "Eq", tag])
            _tell(f"- {topic} {producer} {n}")


def _tell(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def main(arguments: list[str]) -> None:
    directory, seed, *places = arguments
    last = {place.partition("=")[0]: int(place.partition("=")[2]) for place in places}
    log = Log(busy_config(directory))
    for topic, durability in CLASSES.items():
        log.create(topic, durability=durability)
    writers = [
        threading.Thread(
            target=_write_for_ever,
            args=(log, topic, f"p{number}"),
            kwargs={"last_n": last.get(f"{topic}/p{number}", 0), "seed": int(seed)},
        )
        for topic in CLASSES
        for number in range(PRODUCERS)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()


if __name__ == "__main__":
    main(sys.argv[1:])
