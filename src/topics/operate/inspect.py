"""What is where in a data directory: what `topics inspect` shows.

Works on a damaged directory as far as it can be read, and on one that a process has open (then
things may move while it looks). Never reads record data and changes nothing.
Reference: docs/operating/inspect.md.
"""

from collections import Counter
from typing import Any, Final

import msgspec

from topics.errors import RequestError
from topics.kernel import IDX_ENTRY_BYTES, count_live, find_frame, scan_frames, summarize_idx
from topics.kernel.layout import (
    FLAG_BATCH_OPEN,
    FLAG_DURABLE,
    FLAG_META,
    FLAG_NODE,
    FLAG_TAG,
    FRAME_OVERHEAD_BYTES,
)
from topics.operate.report import (
    Finding,
    FrameInfo,
    GroupInfo,
    InspectReport,
    PartitionedInfo,
    SegmentInfo,
    ShardInfo,
    Tier,
    TopicInfo,
    WalFileInfo,
    WalListing,
)
from topics.operate.source import read_source
from topics.operate.state import State, TopicFacts, read_state
from topics.operate.verify import TopicFiles
from topics.operate.wal import Gap, Log, decode, walk_frames
from topics.storage.disk import paths
from topics.storage.disk.disk import Buffer, Disk
from topics.storage.wal.frame import HEADER, FrameType

FLAG_NAMES: Final = {
    FLAG_TAG: "tag",
    FLAG_NODE: "node",
    FLAG_DURABLE: "durable",
    FLAG_META: "meta",
    FLAG_BATCH_OPEN: "batch_open",
}


def inspect(disk: Disk, *, cold: Disk | None = None, in_use: bool = False) -> InspectReport:
    """Look at a directory; `in_use` says that another process has it open."""
    state = read_state(disk)
    source = read_source(disk, paths.FORMAT)
    return InspectReport(
        format=bytes(source.data).decode("utf-8", "replace").strip() if source else None,
        in_use_by_a_process=in_use,
        stopped_cleanly=state.stopped_cleanly and not disk.exists(paths.RUNNING),
        next_topic_id=state.next_topic_id,
        snapshots=[found.describe(in_use=found is state.used) for found in state.snapshots],
        shards=[_describe_log(log) for log in state.logs],
        topics=[_describe_topic(disk, cold, topic) for topic in _by_name(state)],
        groups=_describe_groups(state),
        unknown_topic_ids=_unknown_ids(disk, state),
        notes=_notes(state, in_use=in_use),
        partitioned=_describe_parents(state),
    )


def _by_name(state: State) -> list[TopicFacts]:
    return sorted(state.topics.values(), key=lambda topic: (topic.name or "", topic.id))


def _describe_parents(state: State) -> list[PartitionedInfo]:
    return [
        PartitionedInfo(
            topic_id=parent.id,
            name=parent.name,
            config=parent.config,
            created_ts=parent.created_ts,
            counts=parent.counts,
            found=sum(topic.parent_id == parent.id for topic in state.topics.values()),
        )
        for parent in sorted(state.parents.values(), key=lambda parent: parent.name)
    ]


def _describe_groups(state: State) -> list[GroupInfo]:
    return [
        GroupInfo(
            group=saved.name,
            generation=saved.membership["generation"],
            assignor=saved.membership["assignor"],
            members=sorted(saved.membership["members"]),
            committed=saved.committed,
        )
        for saved in state.groups.save().groups
    ]


def _unknown_ids(disk: Disk, state: State) -> list[int]:
    """Return the topics with files or frames that nothing has created and nothing has deleted."""
    on_disk = map(paths.parse_topic_dir_name, disk.list(paths.TOPICS_DIR))
    files = {i for i in on_disk if i is not None and i >= state.next_topic_id}
    return sorted((files | state.unknown_ids) - set(state.topics) - state.deleted_ids)


def _notes(state: State, *, in_use: bool) -> list[str]:
    notes = [found.problem for found in state.snapshots if found.problem]
    if in_use:
        notes.append("another process has the directory open: what is shown may move")
    if not state.snapshots:
        notes.append("there is no snapshot yet: everything is told by the WAL")
    elif state.used is None:
        notes.append("no snapshot is readable: run topics repair")
    if state.later_frames:
        names = ", ".join(sorted(state.later_frames))
        notes.append(f"the WAL has {names} frames: a newer topics wrote them")
    return notes


def _describe_log(log: Log) -> ShardInfo:
    by_type: Counter[int] = Counter()
    for file in log.files:
        by_type.update(file.by_type)
    return ShardInfo(
        directory=log.directory,
        in_use=log.in_use,
        files=[
            WalFileInfo(
                path=log.path(file.number),
                bytes=file.size,
                used_bytes=file.used,
                frames=file.frames,
            )
            for file in log.files
        ],
        frames_by_type={type_name(kind): by_type[kind] for kind in sorted(by_type)},
        replay_from=(log.start.file, log.start.offset),
        end=(log.end.file, log.end.offset),
        synced=(log.proven.file, log.proven.offset),
        at_risk_bytes=log.at_risk_bytes,
        findings=[_describe_gap(log, gap) for gap in log.gaps],
    )


def _describe_gap(log: Log, gap: Gap) -> Finding:
    verdict = "torn" if gap.torn else "damaged"
    message = f"{log.path(gap.at.file)}: {gap.message} ({verdict})"
    return Finding(message=message, offset=gap.at.offset)


def type_name(kind: int) -> str:
    """Return the name of a frame type as the format page writes it."""
    try:
        return FrameType(kind).name.title().replace("_", "")
    except ValueError:
        return str(kind)


def _describe_topic(disk: Disk, cold: Disk | None, topic: TopicFacts) -> TopicInfo:
    files = TopicFiles(disk, cold, topic)
    segments = [_describe_segment(disk, topic, files, first_seq) for first_seq in files.in_use]
    on_log = sum(
        max(0, run.last_seq - max(run.first_seq, topic.absorbed_seq + 1, topic.earliest_seq) + 1)
        for run in topic.appends
    )
    names = map(paths.parse_tag_run_name, disk.list(paths.topic_dir(topic.id)))
    return TopicInfo(
        topic_id=topic.id,
        name=topic.name,
        config=topic.config,
        created_ts=topic.created_ts,
        head_seq=max([topic.head_seq, *(s.last_seq for s in segments)]),
        earliest_seq=topic.earliest_seq,
        evict_floor=topic.floors.evict_floor,
        evict_reason=topic.floors.reason,
        reserved_seq=topic.reserved_seq,
        absorbed_seq=topic.absorbed_seq,
        records=on_log + sum(s.live_records for s in segments),
        wal_records=on_log,
        pending_deletes=topic.pending_deletes,
        segments=segments,
        holes=[(h.first_seq, h.last_seq, h.reason) for h in topic.holes],
        tag_runs=sorted(name for name in names if name is not None),
        idempotency_keys=topic.idempotency.keys_known,
        producers=topic.idempotency.producers_known,
        parent_id=topic.parent_id or None,
        partition=topic.partition if topic.parent_id else None,
    )


def _describe_segment(
    disk: Disk, topic: TopicFacts, files: TopicFiles, first_seq: int
) -> SegmentInfo:
    is_cold = first_seq not in files.hot
    tier: Tier = "cold" if is_cold else "hot"
    source = read_source(disk, paths.segment_idx_path(topic.id, first_seq))
    idx = memoryview(source.data if source else b"")
    if first_seq == files.in_use[-1]:
        idx = idx[: (topic.absorbed_seq - first_seq + 1) * IDX_ENTRY_BYTES]
    whole = summarize_idx(idx)
    dropped = max(0, min(topic.earliest_seq - first_seq, whole.entries))
    stop = whole.entries if whole.bad_index < 0 else whole.bad_index
    live_records, live_bytes = count_live(idx, min(dropped, stop), stop)
    size = whole.data_end
    if not is_cold:
        size = disk.size(paths.segment_data_path(topic.id, first_seq))
    used = live_bytes + live_records * FRAME_OVERHEAD_BYTES
    return SegmentInfo(
        first_seq=first_seq,
        last_seq=first_seq + whole.entries - 1,
        tier=tier,
        bytes=size,
        live_records=live_records,
        tagged_records=whole.tagged_records,
        dead_share=round(max(0.0, 1 - used / size), 4) if size else 0.0,
        readable=source is not None and whole.bad_index < 0,
    )


# One WAL file, frame by frame.


def list_frames(disk: Disk, path: str, *, offset: int = 0, limit: int = 100) -> WalListing:
    """List the frames of a WAL file at or behind `offset`, and the bytes that are none."""
    source = read_source(disk, path)
    if source is None:
        raise RequestError(f"{path} does not exist: topics inspect DIR lists the WAL files")
    if not 0 <= offset <= len(source.data):
        raise RequestError(f"offset {offset} is outside {path}, which has {len(source.data)} bytes")
    frames: list[FrameInfo] = []
    buffer, at, more = source.data, offset, True
    while more and len(frames) < limit:
        begin = find_frame(buffer, at, len(buffer))
        more = begin >= 0
        if more and begin > at and at > offset:
            frames.append(FrameInfo(offset=at, bytes=begin - at, type="damaged"))
        if more:
            stopped = scan_frames(buffer, begin, len(buffer)).stopped
            at = _describe_frames(buffer, begin, stopped, frames, limit=limit)
    if not more and any(buffer[at : at + 4]):
        frames.append(FrameInfo(offset=at, bytes=len(buffer) - at, type="damaged"))
    return WalListing(path=path, frames=frames, next_offset=at if more else None)


def _describe_frames(
    buffer: Buffer, start: int, stop: int, frames: list[FrameInfo], *, limit: int
) -> int:
    for kind, topic_id, seq, _, begin, end in walk_frames(buffer, start, stop):
        if len(frames) >= limit:
            return begin
        header = HEADER.unpack_from(buffer, begin)
        frames.append(
            FrameInfo(
                offset=begin,
                bytes=end - begin,
                type=type_name(kind),
                topic_id=topic_id,
                seq=seq,
                ts=header[5],
                flags=[name for bit, name in FLAG_NAMES.items() if header[2] & bit],
                body=_describe_body(buffer, kind, begin, header),
            )
        )
    return stop


def _describe_body(
    buffer: Buffer, kind: int, offset: int, header: tuple[int, ...]
) -> dict[str, Any]:
    if kind != FrameType.APPEND:
        body = decode(buffer, offset)
        return {} if body is None else msgspec.structs.asdict(body)
    _, _, _, _, _, _, node_len, tag_len, data_len = header
    at = offset + HEADER.size
    node = bytes(buffer[at : at + node_len]).decode("utf-8", "replace")
    tag = bytes(buffer[at + node_len : at + node_len + tag_len]).decode("utf-8", "replace")
    shown = {"node": node or None, "tag": tag or None, "payload_bytes": data_len}
    return {name: value for name, value in shown.items() if value is not None}
