"""Sorted tags of sealed records, on disk: what makes a delete by tag cost by its matches.

Owns the `tags-*.run` files of one topic. They are derived: a missing or bad one is built again
from its segments.
Keeps: a run holds every tagged record of its seq range that was live when it was built.
Eight runs of one size are merged into one, so a topic has few of them however long it is.
"""

import struct
from array import array
from collections.abc import Sequence
from functools import partial

from topics.errors import FileMissing
from topics.kernel import build_tag_run, check_tag_run, lookup_tag_run, merge_tag_runs
from topics.storage.disk import paths
from topics.storage.disk.data_dir import write_file
from topics.storage.disk.disk import Disk
from topics.storage.disk.open_maps import OpenMaps
from topics.storage.segments.segment import Segment

MERGE_RUNS = 8
MANY_RUNS = 48
_COUNT = struct.Struct("<I")
_COUNT_OFFSET = 4
Match = tuple[int, bytes]


class TagRun:
    """One run: the seqs it speaks for, and its bytes, mapped when they are needed."""

    def __init__(
        self, disk: Disk, maps: OpenMaps, path: str, *, first_seq: int, last_seq: int
    ) -> None:
        self._disk = disk
        self._maps = maps
        self.path = path
        self.first_seq = first_seq
        self.last_seq = last_seq
        self._view: memoryview | None = None
        count: int = _COUNT.unpack_from(self.view(), _COUNT_OFFSET)[0]
        self.level = count.bit_length() // 3
        """The size class: eight runs of one level make a run of the next."""

    def view(self) -> memoryview:
        view = self._view
        if view is None:
            view = self._view = self._maps.open(self, partial(self._disk.map, self.path))
        return view

    def release(self) -> None:
        self._view = None


def plan_merge(levels: list[int]) -> tuple[int, int] | None:
    """Return the neighbouring runs to merge: eight of a level, or the smallest of too many."""
    windows = range(len(levels) - MERGE_RUNS, -1, -1)
    for start in windows:
        if len(set(levels[start : start + MERGE_RUNS])) == 1:
            return start, start + MERGE_RUNS
    if len(levels) <= MANY_RUNS:
        return None
    start = min(windows, key=lambda at: sum(levels[at : at + MERGE_RUNS]))
    return start, start + MERGE_RUNS


class TagRuns:
    """The runs of one topic, ascending and disjoint. One thread changes them, any may look up."""

    __slots__ = ("_disk", "_maps", "_runs", "_topic_id")

    def __init__(self, disk: Disk, maps: OpenMaps, topic_id: int) -> None:
        self._disk = disk
        self._maps = maps
        self._topic_id = topic_id
        self._runs: list[TagRun] = []

    def load(self, names: Sequence[str]) -> None:
        """Take the whole, disjoint runs that are there; remove what a crash left of a merge.

        `names` are those of the files in the topic's directory.
        """
        directory = paths.topic_dir(self._topic_id)
        named = [(found, name) for name in names if (found := paths.parse_tag_run_name(name))]
        for (first_seq, last_seq), name in sorted(
            named, key=lambda item: (item[0][0], -item[0][1])
        ):
            path = f"{directory}/{name}"
            inside = bool(self._runs) and first_seq <= self._runs[-1].last_seq
            if inside or not check_tag_run(self._disk.map(path)):
                self._disk.unlink(path)
            else:
                self._runs.append(self._open(first_seq, last_seq))

    @property
    def has_runs(self) -> bool:
        return bool(self._runs)

    @property
    def may_merge(self) -> bool:
        return len(self._runs) >= MERGE_RUNS

    def covers(self, segment: Segment) -> bool:
        return any(
            r.first_seq <= segment.first_seq and segment.last_seq <= r.last_seq for r in self._runs
        )

    def build(self, segment: Segment) -> bytes:
        """Return the run of a sealed segment's live records; empty where none has a tag."""
        return build_tag_run(segment.whole_data(), segment.idx(), segment.first_seq)

    def add(self, segment: Segment, content: bytes) -> None:
        """Take in what `build` returned.

        The run leaves deleted records out, so that a replay of their delete would not find them
        again: their flags must be durable before it is.
        """
        if content:
            run = self._save(segment.first_seq, segment.last_seq, content)
            self._runs = sorted([*self._runs, run], key=lambda run: run.first_seq)

    def merge_once(self) -> bool:
        """Merge eight runs into one, if there are eight that fit; tell whether there were."""
        planned = plan_merge([run.level for run in self._runs])
        if planned is None:
            return False
        start, stop = planned
        old = self._runs[start:stop]
        merged = merge_tag_runs([run.view() for run in old])
        run = self._save(old[0].first_seq, old[-1].last_seq, merged)
        self._runs = [*self._runs[:start], run, *self._runs[stop:]]
        self._remove(old)
        return True

    def drop_below(self, seq: int) -> None:
        """Remove the runs of records that are all gone."""
        gone = [run for run in self._runs if run.last_seq < seq]
        if gone:
            self._runs = [run for run in self._runs if run.last_seq >= seq]
            self._remove(gone)

    def lookup(self, match: Match) -> "array[int]":
        """Return the seqs whose records had a matching tag, ascending; some may be gone since."""
        while True:
            runs = self._runs
            try:
                found = [lookup_tag_run(run.view(), match) for run in runs]
            except FileMissing:
                # A merge took the file before it was mapped: what replaced it is in the new list.
                if runs is self._runs:
                    raise
            else:
                return array("Q", b"".join(found))

    def _save(self, first_seq: int, last_seq: int, content: bytes) -> TagRun:
        path = paths.tag_run_path(self._topic_id, first_seq, last_seq)
        self._disk.make_dir(paths.topic_dir(self._topic_id))  # an ephemeral topic has none
        write_file(self._disk, path, content)
        return self._open(first_seq, last_seq)

    def _open(self, first_seq: int, last_seq: int) -> TagRun:
        path = paths.tag_run_path(self._topic_id, first_seq, last_seq)
        return TagRun(self._disk, self._maps, path, first_seq=first_seq, last_seq=last_seq)

    def _remove(self, runs: list[TagRun]) -> None:
        for run in runs:
            if self._disk.exists(run.path):
                self._disk.unlink(run.path)
