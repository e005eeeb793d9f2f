"""Where the readable records of each topic are: in segments of both tiers and logs, past damage.

    walk each `.data` → pieces (dense seqs, one file) + why seqs between them are lost + what the
    index knows to be deleted → plan: for each seq the best piece

Frames say themselves which topic and seq they are, so a file under a wrong name is as good as any.
Only places are kept in memory, never records.
"""

from typing import Final, NamedTuple

from topics.kernel import FLAG_DELETED, IDX_ENTRY_BYTES, count_live, summarize_idx
from topics.operate.frames import ENTRY, Stretch, matching_flags, walk_segment
from topics.operate.ranges import Range, join, subtract
from topics.operate.report import Finding
from topics.operate.source import Meter, Source, read_source
from topics.operate.state import TopicFacts
from topics.storage.disk import paths
from topics.storage.disk.disk import Disk

HOT, COLD, WAL = 0, 1, 2
"""Best first: a segment knows what was deleted, and the hot one knows it first."""
NO_END: Final = 1 << 63


class Piece(NamedTuple):
    """A dense range of seqs in one file; those without a frame are deleted."""

    rank: int
    first_seq: int
    last_seq: int
    path: str
    start: int
    end: int
    flags_may_lag: bool = False
    """A cold copy, or one in a wrong place: an index elsewhere may know more deletes."""


class Cause(NamedTuple):
    """Why seqs may be missing."""

    first_seq: int
    last_seq: int
    why: str


class Salvage:
    """What is left of one topic."""

    def __init__(self, facts: TopicFacts) -> None:
        self.facts = facts
        self.pieces: list[Piece] = []
        self.causes: list[Cause] = []
        self.deleted: list[Range] = []
        """Known to be deleted although no frame is left: an index says so."""

    @property
    def first_found(self) -> int | None:
        return min((piece.first_seq for piece in self.pieces), default=None)

    @property
    def last_found(self) -> int:
        return max((piece.last_seq for piece in self.pieces), default=0)

    def add_logs(self) -> None:
        """Take in what the logs hold."""
        for run in self.facts.appends:
            path = f"{run.directory}/{paths.wal_file_name(run.file)}"
            self.pieces.append(Piece(WAL, run.first_seq, run.last_seq, path, run.start, run.end))

    def plan(self) -> list[Piece]:
        """Return pieces in order, no seq in two of them, none below the floor or in a hole.

        A piece that was cut still names its whole byte range: the copy looks for its seqs in there.
        """
        gone = [(hole.first_seq, hole.last_seq) for hole in self.facts.holes]
        taken = join([(0, self.facts.earliest_seq - 1), *gone])
        planned: list[Piece] = []
        for rank in (HOT, COLD, WAL):
            found: list[Range] = []
            for piece in sorted(p for p in self.pieces if p.rank == rank):
                begin = max(piece.first_seq, found[-1][1] + 1 if found else 0)
                if begin > piece.last_seq:
                    continue
                found.append((begin, piece.last_seq))
                for first_seq, last_seq in _free(taken, begin, piece.last_seq):
                    planned.append(piece._replace(first_seq=first_seq, last_seq=last_seq))
            taken = join([*taken, *found])
        return sorted(planned, key=lambda piece: piece.first_seq)


def _free(taken: list[Range], first_seq: int, last_seq: int) -> list[Range]:
    return subtract([(first_seq, last_seq)], taken)


def salvage_segments(
    tiers: dict[int, Disk], rank: int, salvages: dict[int, Salvage], *, meter: Meter
) -> list[Finding]:
    """Walk every `.data` of one tier; return what is damaged."""
    disk = tiers[rank]
    findings: list[Finding] = []
    for name in disk.list(paths.TOPICS_DIR):
        topic_id = paths.parse_topic_dir_name(name)
        if topic_id is None:
            continue
        parsed = map(paths.parse_segment_name, disk.list(paths.topic_dir(topic_id)))
        for first_seq in sorted({found[0] for found in parsed if found}):
            if _is_elsewhere(tiers, rank, paths.segment_data_path(topic_id, first_seq)):
                continue
            source = _SegmentFiles(tiers, rank, topic_id, first_seq, meter)
            findings += _SegmentSalvage(source).run(salvages)
    return findings


def _is_elsewhere(tiers: dict[int, Disk], rank: int, path: str) -> bool:
    """Tell whether only the other tier has the data, so that it is looked at there."""
    return not tiers[rank].exists(path) and any(disk.exists(path) for disk in tiers.values())


class _SegmentFiles:
    """The two files of one segment in one tier; the `.idx` of the hot tier is the better one."""

    def __init__(
        self, tiers: dict[int, Disk], rank: int, topic_id: int, first_seq: int, meter: Meter
    ) -> None:
        self.rank = rank
        self.topic_id = topic_id
        self.first_seq = first_seq
        self.data_path = paths.segment_data_path(topic_id, first_seq)
        idx_path = paths.segment_idx_path(topic_id, first_seq)
        self.data = read_source(tiers[rank], self.data_path, meter)
        self.idx = read_source(tiers[HOT], idx_path) or read_source(tiers[rank], idx_path)


class _SegmentSalvage:
    """One segment of one tier."""

    def __init__(self, files: _SegmentFiles) -> None:
        self._rank = files.rank
        self._topic_id = files.topic_id
        self._first_seq = files.first_seq
        self._data_path = files.data_path
        self._data = files.data
        self._idx = files.idx

    def run(self, salvages: dict[int, Salvage]) -> list[Finding]:
        mine = salvages.get(self._topic_id)
        if self._data is None:
            return self._without_data(mine)
        walk = walk_segment(self._data.data, topic_id=self._topic_id)
        for stretch in walk.stretches:
            if stretch.topic_id in salvages:
                salvages[stretch.topic_id].pieces.append(self._piece(stretch))
        findings = []
        for start, end in walk.gaps:
            message = (
                f"{self._data_path}: bytes {start} to {end} are no frames, or fail their checksum"
            )
            findings.append(Finding(message=message, offset=start))
            if mine is not None:
                mine.causes.append(self._cause(walk.stretches, start, end))
        if mine is not None:
            self._learn_deleted(mine, walk.stretches)
            mine.causes += self._cut_off(walk.stretches)
        return findings

    def _piece(self, stretch: Stretch) -> Piece:
        first_seq, last_seq = stretch.first_seq, stretch.last_seq
        start, end = stretch.start, stretch.end
        misplaced = stretch.topic_id != self._topic_id or not (
            self._first_seq <= first_seq <= self._last_by_idx()
        )
        lags = self._rank == COLD or misplaced
        return Piece(self._rank, first_seq, last_seq, self._data_path, start, end, lags)

    def _without_data(self, mine: Salvage | None) -> list[Finding]:
        if mine is None or self._idx is None:
            return []
        last_seq = self._first_seq + len(self._idx.data) // IDX_ENTRY_BYTES - 1
        mine.deleted += _deleted_ranges(self._idx, self._first_seq)
        why = f"{self._data_path} is missing"
        mine.causes.append(Cause(self._first_seq, last_seq, why))
        return [Finding(message=why, first_seq=self._first_seq, last_seq=last_seq)]

    def _cause(self, stretches: list[Stretch], start: int, end: int) -> Cause:
        before = max((s.last_seq for s in stretches if s.end <= start), default=None)
        behind = next((s.first_seq for s in stretches if s.start >= end), None)
        first_seq = self._first_seq if before is None else before + 1
        last_seq = behind - 1 if behind is not None else self._last_by_idx()
        return Cause(first_seq, last_seq, f"{self._data_path} is damaged at offset {start}")

    def _cut_off(self, stretches: list[Stretch]) -> list[Cause]:
        """Name the records that the index knows behind the last frame."""
        mine = [s.last_seq for s in stretches if s.topic_id == self._topic_id]
        first_seq = max(mine, default=self._first_seq - 1) + 1
        last_seq = self._last_by_idx()
        if self._idx is None or last_seq < first_seq:
            return []
        return [Cause(first_seq, last_seq, f"{self._data_path} ends before them")]

    def _last_by_idx(self) -> int:
        if self._idx is None or not self._idx.data:
            return NO_END
        return self._first_seq + len(self._idx.data) // IDX_ENTRY_BYTES - 1

    def _learn_deleted(self, mine: Salvage, stretches: list[Stretch]) -> None:
        """Take what is deleted from the index, or from a beginning without frames."""
        if self._idx is not None:
            known = _deleted_ranges(self._idx, self._first_seq)
            mine_only = [s for s in stretches if s.topic_id == self._topic_id]
            if not known:
                return
            if mine_only and not any(
                matching_flags(self._idx.data, s, first_seq=self._first_seq) for s in mine_only
            ):
                return  # an index of other records: nothing it says is of these
            found = join((s.first_seq, s.last_seq) for s in stretches)
            mine.deleted += subtract(known, found)
            return
        first = stretches[0] if stretches else None
        if first is not None and first.start == 0 and first.topic_id == self._topic_id:
            mine.deleted += join([(self._first_seq, first.first_seq - 1)])


def _deleted_ranges(idx: Source, first_seq: int) -> list[Range]:
    """Return what an index calls deleted, as far as its entries follow each other."""
    bad = summarize_idx(idx.data).bad_index
    stop = len(idx.data) // IDX_ENTRY_BYTES if bad < 0 else bad
    if count_live(idx.data, 0, stop)[0] == stop:
        return []
    part = memoryview(idx.data)[: stop * IDX_ENTRY_BYTES]
    return join(
        (first_seq + i, first_seq + i)
        for i, (_, _, _, flags) in enumerate(ENTRY.iter_unpack(part))
        if flags & FLAG_DELETED
    )


def attribute(lost: list[Range], causes: list[Cause], default: str) -> list[Cause]:
    """Split what is lost by why: the first cause that speaks for a seq, the narrow ones first."""
    told: list[Cause] = []
    left = lost
    for cause in sorted(causes, key=lambda cause: cause.last_seq - cause.first_seq):
        here = [(cause.first_seq, cause.last_seq)]
        rest = subtract(left, here)
        told += [Cause(a, b, cause.why) for a, b in subtract(left, rest)]
        left = rest
    told += [Cause(a, b, default) for a, b in left]
    return _merged(sorted(told))


def _merged(causes: list[Cause]) -> list[Cause]:
    merged: list[Cause] = []
    for cause in causes:
        if merged and merged[-1].why == cause.why and merged[-1].last_seq + 1 == cause.first_seq:
            merged[-1] = merged[-1]._replace(last_seq=cause.last_seq)
        else:
            merged.append(cause)
    return merged
