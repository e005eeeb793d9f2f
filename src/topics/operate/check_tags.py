"""Tag runs against the records they speak for.

A run holds every tagged record of its range that was live when it was built. So merging the live
tags of the segments into it must change nothing, which the kernel tells in bulk.
"""

from typing import Final

from topics.errors import CorruptData
from topics.kernel import IDX_ENTRY_BYTES, build_tag_run, check_tag_run, merge_tag_runs
from topics.kernel.layout import Buffer
from topics.operate.report import FileVerdict, Finding, Verdict
from topics.operate.source import Meter, read_source
from topics.storage.disk import paths
from topics.storage.disk.disk import Disk

COMPARED_BYTES_MAX: Final = 64 << 20
"""A larger run is checked by its checksum alone, to keep memory flat."""


class TagCheck:
    """The tag runs of one topic; `add` each whole segment in seq order, then `finish`."""

    def __init__(self, disk: Disk, topic_id: int, meter: Meter) -> None:
        self._disk = disk
        self._meter = meter
        directory = paths.topic_dir(topic_id)
        named = [
            (found, f"{directory}/{name}")
            for name in disk.list(directory)
            if (found := paths.parse_tag_run_name(name))
        ]
        # As `TagRuns.load` takes them: the widest of those that begin together.
        self._named = sorted(named, key=lambda item: (item[0][0], -item[0][1]))
        self._pending: list[bytes] = []
        self._done: list[FileVerdict] = []

    def add(self, data: Buffer, idx: Buffer, first_seq: int, records: int) -> None:
        last_seq = first_seq + records - 1
        while self._named and self._named[0][0][1] < first_seq:
            self._close()
        if not self._named:
            return
        (run_first, run_last), path = self._named[0]
        if run_first > first_seq or last_seq > run_last:
            return
        if self._disk.size(path) <= COMPARED_BYTES_MAX:
            entries = memoryview(idx)[: records * IDX_ENTRY_BYTES]
            self._pending.append(build_tag_run(data, entries, first_seq))

    def finish(self) -> list[FileVerdict]:
        while self._named:
            self._close()
        return self._done

    def _close(self) -> None:
        (first_seq, last_seq), path = self._named.pop(0)
        pending, self._pending = self._pending, []
        source = read_source(self._disk, path, self._meter)
        content = source.data if source else b""
        verdict: Verdict = "damaged"
        findings = []
        if not check_tag_run(content):
            message = "fails its checksum (derived: the next start builds it again)"
            findings = [Finding(message=message, offset=0)]
        elif not _holds(content, [run for run in pending if run]):
            message = (
                "lacks tags that records of its range have (remove the file: it is built again)"
            )
            findings = [Finding(message=message, first_seq=first_seq, last_seq=last_seq)]
        else:
            verdict = "ok"
        self._done.append(
            FileVerdict(
                path=path, kind="tags", verdict=verdict, bytes=len(content), findings=findings
            )
        )
        while self._named and self._named[0][0][0] <= last_seq:  # left behind by a merge
            path = self._named.pop(0)[1]
            size = self._disk.size(path)
            self._done.append(FileVerdict(path=path, kind="tags", verdict="stray", bytes=size))


def _holds(content: Buffer, pending: list[bytes]) -> bool:
    if not pending:
        return True
    try:
        return merge_tag_runs([content, *pending]) == content
    except CorruptData:
        return False
