"""A data or a cold directory as it lies on disk or in an object store, without a server.

What segments hold is read; records that are only in the WAL are not seen: a clean stop of the
server or of the log puts everything into segments. The newest snapshot tells names and floors. A
cold directory has none: its topics go by their ids, sixteen hex digits.
"""

import logging
from collections.abc import Sequence

from topics.errors import OptionError, TopicNotFound
from topics.kernel import IdxSummary, bisect_ts, summarize_idx
from topics.model.segments import HoleState, Manifest, SegmentLocation, SegmentState
from topics.pipeline.local_files import open_directory
from topics.pipeline.offsets import Part, PartState
from topics.pipeline.options import is_object_uri
from topics.storage.disk import paths
from topics.storage.disk.disk import ReadableDisk
from topics.storage.snapshots.snapshot import TopicSnapshot, load_newest_snapshot

_log = logging.getLogger("topics.pipeline")


def _open(path: str) -> ReadableDisk:
    if not is_object_uri(path):
        return open_directory(path)
    from topics.pipeline.object_files import ObjectDisk  # noqa: PLC0415 - loads every object store

    return ObjectDisk(path)


class DirectoryCatalog:
    """Knows the topics of one directory as they were when it was opened."""

    def __init__(self, path: str) -> None:
        self._disk = _open(path)
        loaded = load_newest_snapshot(self._disk)
        self._topics: dict[str, TopicSnapshot | None] = {}
        self._ids: dict[str, int] = {}
        self._parents: dict[int, str] = {}
        if loaded is not None:
            self._parents.update({parent.topic_id: parent.name for parent in loaded[1].partitioned})
            self._topics.update({topic.name: topic for topic in loaded[1].topics})
            self._ids.update({topic.name: topic.topic_id for topic in loaded[1].topics})
        else:
            for name in self._disk.list(paths.TOPICS_DIR):
                topic_id = paths.parse_topic_dir_name(name)
                if topic_id is not None:
                    self._topics[name], self._ids[name] = None, topic_id
        if not self._topics:
            raise OptionError(f"{path} holds no topics: it is neither a data nor a cold directory")
        is_whole = (
            loaded is None or loaded[1].clean
        )  # a stop with many topics leaves some on the log
        if self._disk.exists(paths.RUNNING) or not is_whole:
            _log.warning(
                "topics: %s is in use, or was not closed, or with very many topics: the newest "
                "records are not in segments yet and are not read; read with url",
                path,
            )

    def close(self) -> None:
        """Nothing is held open."""

    def states(self, topics: Sequence[str], *, skip_missing: bool = False) -> list[PartState]:
        parts: set[Part] = set()
        for pattern in topics:
            found = {part for part in map(self._part, self._topics) if _is_meant(part, pattern)}
            if not found and not pattern.endswith("*") and not skip_missing:
                raise TopicNotFound(pattern)
            parts |= found
        return [self._state(part, self.manifest(part)) for part in sorted(parts)]

    def manifest(self, part: Part, *, pin_ms: int | None = None) -> Manifest:  # noqa: ARG002 - nothing to pin
        topic = self._topics[part.name]
        segments = self._segments(part.name)
        first = segments[0].first_seq if segments else 1
        head = segments[-1].last_seq if segments else 0
        if topic is None:
            return Manifest(
                topic=part.name, epoch=0, head_seq=head, earliest_seq=first, evict_floor=1,
                evict_reason="cap", holes=[], segments=segments, pin=None,
            )  # fmt: skip
        return Manifest(
            topic=part.name,
            epoch=topic.topic_id,
            head_seq=head,
            earliest_seq=topic.earliest_seq,
            evict_floor=topic.evict_floor,
            evict_reason=topic.evict_reason,
            holes=[HoleState(first_seq=a, last_seq=b, reason=r) for a, b, r in topic.holes],
            segments=segments,
            pin=None,
        )

    def seq_at(self, state: PartState, ts: int) -> int:
        for segment in self._segments(state.part.name):
            if segment.last_ts >= ts:
                topic_id = self._ids[state.part.name]
                idx = self._disk.map(paths.segment_idx_path(topic_id, segment.first_seq))
                return segment.first_seq + bisect_ts(idx, 0, segment.records, ts)
        return state.head_seq + 1

    def _part(self, name: str) -> Part:
        topic = self._topics[name]
        parent = None if topic is None else self._parents.get(topic.parent_id)
        if topic is None or parent is None:
            return Part(name, name)
        return Part(name, parent, topic.partition)

    def _state(self, part: Part, manifest: Manifest) -> PartState:
        return PartState(
            part=part,
            epoch=manifest.epoch,
            head_seq=manifest.head_seq,
            earliest_seq=manifest.earliest_seq,
        )

    def _segments(self, name: str) -> list[SegmentState]:
        topic_id = self._ids[name]
        parsed = map(paths.parse_segment_name, self._disk.list(paths.topic_dir(topic_id)))
        firsts = sorted(found[0] for found in parsed if found is not None and found[1] == "idx")
        return [state for first in firsts if (state := self._segment(topic_id, first)) is not None]

    def _segment(self, topic_id: int, first_seq: int) -> SegmentState | None:
        data = paths.segment_data_path(topic_id, first_seq)
        idx = paths.segment_idx_path(topic_id, first_seq)
        if not self._disk.exists(data):
            return None  # the data of a cold segment lies elsewhere
        summary: IdxSummary = summarize_idx(self._disk.map(idx))
        # Behind a bad entry is what a running server is just writing.
        entries = summary.entries if summary.bad_index < 0 else summary.bad_index
        if entries == 0:
            return None
        return SegmentState(
            first_seq=first_seq,
            last_seq=first_seq + entries - 1,
            records=entries,
            live_records=summary.live_records,
            bytes=summary.data_end,
            first_ts=summary.first_ts,
            last_ts=summary.last_ts,
            tier="hot",
            location=self._location(data, idx),
            sealed=True,
        )

    def _location(self, data: str, idx: str) -> SegmentLocation:
        data_uri, idx_uri = self._disk.location(data), self._disk.location(idx)
        assert data_uri is not None
        assert idx_uri is not None
        return SegmentLocation(data=data_uri, idx=idx_uri)


def _is_meant(part: Part, pattern: str) -> bool:
    """Tell whether a pattern names a part, or the topic it is a partition of."""
    if pattern.endswith("*"):
        return part.name.startswith(pattern[:-1])
    return pattern in (part.name, part.topic)
