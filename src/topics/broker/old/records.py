"""Old logs become partitions: each record stays in its partition and its order.

Keeps: the last old offset that a partition has is written with its records, as the `producer_seq`
of `PRODUCER`, so a run that was cut, or comes again, goes on behind it and repeats nothing; a topic
that was not imported, and a partition that others have written to since, is not touched.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from topics.broker.old.files import OldFile, OldLine, Problem, read_lines
from topics.broker.old.report import ImportedFile, Notebook
from topics.embedded import Log
from topics.engine.topics.topic import Topic
from topics.errors import DiskFailed, RequestError, TopicNotFound
from topics.limits import Limits
from topics.model.topic_config import TopicConfig
from topics.storage.disk.disk import Disk

PRODUCER: Final = "import-broker"
OLD_OFFSET: Final = "broker_offset"
"""The member of `meta` in which a record keeps its old offset."""
BATCH_RECORDS: Final = 1_000
BATCH_CHARS: Final = 1 << 20


class RecordImport:
    """Takes over the logs of one directory. Without a log of ours it only looks."""

    def __init__(
        self,
        old: Disk,
        log: Log | None,
        *,
        limits: Limits,
        notebook: Notebook,
        meter: Callable[[int], None],
    ) -> None:
        self._old = old
        self._log = log
        self._limits = limits
        self._notebook = notebook
        self._meter = meter
        self._dry_run = notebook.report.dry_run
        self._made: list[str] = []
        self.ends: dict[tuple[str, int], int] = {}
        """Of each partition that was taken over, the offset behind its last record."""

    def import_topic(self, topic: str, files: list[OldFile]) -> None:
        try:
            partitions = self._open_topic(topic, max(file.partition for file in files) + 1)
        except RequestError as error:
            for file in files:
                self._notebook.note(Problem(file.name, 0, str(error)))
                self._meter(file.size)
            return
        for file in sorted(files, key=lambda file: file.partition):
            missing = file.partition >= len(partitions)
            self._import_file(file, None if missing else partitions[file.partition])

    def _open_topic(self, topic: str, count: int) -> tuple[Topic, ...]:
        """Return the partitions there are, after making those that are missing."""
        if self._log is None:
            return ()
        found = partitions_of(self._log, topic)
        if found and found[0].name == topic:
            raise RequestError(f"topic {topic!r} is there already and has no partitions")
        if any(part.live_records for part in found) and not any(map(_done, found)):
            raise RequestError(f"topic {topic!r} is there already and was not imported")
        if len(found) < count and not self._dry_run:
            # Synced batch by batch: a power cut must not leave a gap between two of them.
            # And known for good: a run that comes again after weeks repeats nothing.
            config = {} if found else {"durability": "fsync", "producer_expiry_ms": 0}
            self._log.create(topic, partitions=count, **config)
            found = partitions_of(self._log, topic)
            if config:
                self._made.append(topic)
        return found

    def finish(self) -> None:
        """Make all of it durable, and give the topics that were made the class of any other."""
        if self._log is None or self._dry_run:
            return
        self._log.sync()
        for topic in self._made:
            self._log.create(topic, durability=TopicConfig().durability)

    def _import_file(self, file: OldFile, partition: Topic | None) -> None:
        result = ImportedFile(file=file.name, topic=file.topic, partition=file.partition)
        report = self._notebook.report
        report.files.append(result)
        before = report.problem_count
        try:
            self._import_lines(file, partition, result)
        except (DiskFailed, RequestError) as error:
            self._notebook.note(Problem(file.name, 0, str(error)))
        result.problems = report.problem_count - before

    def _import_lines(self, file: OldFile, partition: Topic | None, result: ImportedFile) -> None:
        done_offset, done_seq = (_done(partition) if partition else None) or (-1, 0)
        is_closed = partition is not None and self._holds_more(partition, done_seq)
        self.ends[file.topic, file.partition] = done_offset + 1
        batch: list[OldLine] = []
        chars = 0
        for line in self._notebook.sound(self._read(file)):
            if line.offset <= done_offset:
                result.already_there += 1
                continue
            if is_closed:
                # Behind what others wrote nothing is added: offsets would mean something else.
                raise RequestError(
                    f"offset {line.offset} and what follows is new, but others have written to "
                    "this partition since: it is not imported"
                )
            batch.append(line)
            chars += len(line.value)
            if len(batch) >= self._batch_records or chars >= BATCH_CHARS:
                self._append(file, partition, batch, result)
                batch, chars = [], 0
        if batch:
            self._append(file, partition, batch, result)

    def _holds_more(self, partition: Topic, done_seq: int) -> bool:
        """Tell whether there are records behind the last one that was imported."""
        assert self._log is not None
        return self._log.diff(partition.name, from_seq=done_seq, limit=1).count > 0

    @property
    def _batch_records(self) -> int:
        return min(BATCH_RECORDS, self._limits.max_batch_records)

    def _read(self, file: OldFile) -> Iterator[OldLine | Problem]:
        max_bytes = self._limits.max_record_bytes
        for line in read_lines(self._old, file, max_value_bytes=max_bytes, meter=self._meter):
            if isinstance(line, OldLine) and not _fits(line, max_bytes):
                yield Problem(file.name, line.number, f"as JSON it has more than {max_bytes} bytes")
            else:
                yield line

    def _append(
        self, file: OldFile, partition: Topic | None, batch: list[OldLine], result: ImportedFile
    ) -> None:
        if not self._dry_run:
            assert self._log is not None
            assert partition is not None
            self._log.append(
                partition.name,
                [_record(line) for line in batch],
                producer_id=PRODUCER,
                producer_seq=batch[-1].offset,
            )
        self.ends[file.topic, file.partition] = batch[-1].offset + 1
        result.imported += len(batch)


def partitions_of(log: Log, topic: str) -> tuple[Topic, ...]:
    try:
        return log.engine.partitions_of(topic)
    except TopicNotFound:
        return ()


def _done(partition: Topic) -> tuple[int, int] | None:
    """Return the last old offset that a partition has, and its seq."""
    return partition.idempotency.last_of(PRODUCER)


def _record(line: OldLine) -> dict[str, object]:
    return {"data": line.value, "meta": {OLD_OFFSET: line.offset}}


def _fits(line: OldLine, max_bytes: int) -> bool:
    if 6 * len(line.value) + 64 <= max_bytes:  # a character is at most `\u0000` as JSON
        return True
    record = _record(line)
    return sum(len(msgspec.json.encode(part)) for part in record.values()) <= max_bytes
