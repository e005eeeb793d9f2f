"""Sixteen writers, readers, deletes and the background on a real directory; then a kill.

Acknowledged ⊆ readable, in the order of each writer, with no seq given out twice.
"""

import threading
from pathlib import Path

import pytest

from topics.embedded import Log
from topics.testing.real_process import busy_config

WRITERS = 16
WRITES = 60
DEADLINE_S = 120.0
CLASSES = {"sure": "fsync", "fast": "disk"}


class Fire:
    """The threads, what they were told, and what went wrong in them."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.acked: list[tuple[str, int, int, int]] = []
        """Topic, seq, writer, number."""
        self.deleted: list[tuple[str, str]] = []
        self.errors: list[BaseException] = []
        self._done = threading.Event()

    def run(self) -> None:
        writers = [
            threading.Thread(target=self._guard, args=(self._write, w)) for w in range(WRITERS)
        ]
        others = [
            threading.Thread(target=self._guard, args=(self._read, topic)) for topic in CLASSES
        ]
        others.append(threading.Thread(target=self._guard, args=(self._work, None)))
        for thread in [*writers, *others]:
            thread.start()
        for thread in writers:
            thread.join(DEADLINE_S)
        self._done.set()
        for thread in others:
            thread.join(DEADLINE_S)
        assert not any(thread.is_alive() for thread in [*writers, *others]), "a thread hangs"
        assert not self.errors, self.errors

    def _guard(self, step, argument) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
        try:
            step(argument)
        except BaseException as error:  # noqa: BLE001 - told by `run`
            self.errors.append(error)

    def _write(self, writer: int) -> None:
        topic = ("sure", "fast")[writer % 2]
        for n in range(WRITES):
            tag = f"w{writer}:{n}"
            records = [{"data": {"w": writer, "n": n}, "tag": tag}]
            appended = self.log.append(topic, records, producer_id=f"w{writer}", producer_seq=n)
            self.acked.append((topic, appended.first_seq, writer, n))
            if n % 20 == 19:
                assert self.log.delete(topic, match=["tag", "Eq", tag]).deleted == 1
                self.deleted.append((topic, tag))

    def _read(self, topic: str) -> None:
        """Follow the log: every page goes on where the last one ended, each writer in order."""
        cursor = 0
        newest: dict[int, int] = {}
        while not self._done.is_set():
            page = self.log.diff(topic, from_seq=cursor, limit=100)
            assert page.tombstone is None
            for record in page.records:
                assert record.seq > cursor
                cursor = record.seq
                writer, n = record.data["w"], record.data["n"]
                assert n > newest.get(writer, -1)
                newest[writer] = n
            cursor = page.next_from_seq

    def _work(self, _: None) -> None:
        while not self._done.wait(0.01):
            self.log.checkpoint()


@pytest.mark.crash
def test_what_many_threads_were_promised_is_there_after_a_kill(tmp_path: Path) -> None:
    config = busy_config(str(tmp_path))
    log = Log(config)
    for topic, durability in CLASSES.items():
        log.create(topic, durability=durability)
    fire = Fire(log)
    fire.run()
    assert log.last_error is None
    assert log._background is not None
    log._background.stop()
    log.engine.abandon()
    check(Log(config, background=False), fire)


def check(log: Log, fire: Fire) -> None:
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for topic in CLASSES:
        page = log.diff(topic, limit=1_000)
        assert page.caught_up
        assert page.tombstone is None
        found[topic] = {r.seq: (r.data["w"], r.data["n"]) for r in page.records}
        tags = {(topic, record.tag) for record in page.records}
        assert tags.isdisjoint(fire.deleted)
    gone = set(fire.deleted)
    for topic, seq, writer, n in fire.acked:
        if (topic, f"w{writer}:{n}") not in gone:
            assert found[topic][seq] == (writer, n)
    for topic in CLASSES:
        seqs = [seq for t, seq, _, _ in fire.acked if t == topic]
        assert sorted(seqs) == list(range(1, len(seqs) + 1))
