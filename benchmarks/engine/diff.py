"""Reading: 1000 records to reply JSON, by the kernel alone and by a whole `diff`."""

import time
from types import ModuleType

import topics
from benchmarks.engine.payloads import BATCH, body
from benchmarks.engine.places import data_dir
from topics.allocator import keep_freed_memory
from topics.kernel import SEGMENT_LAYOUT, frames_to_segment, parse_batch, stamp_batch


def projection_rate(twin: ModuleType, *, rounds: int) -> float:
    """Return records a second of `project_records` over a page of 1000."""
    keep_freed_memory(64 << 20)  # as `topics.open` does
    batch = parse_batch(
        body(),
        max_records=BATCH,
        max_record_bytes=1 << 20,
        max_meta_bytes=1 << 14,
        max_tag_bytes=256,
        max_node_bytes=128,
    )
    stamp_batch(batch, topic_id=1, first_seq=1, ts=1_700_000_000_000, flags=0)
    data, idx = frames_to_segment([(batch.frames, batch.idx, 0, BATCH)], base=0)
    started = time.perf_counter()
    for _ in range(rounds):
        page = twin.project_records(
            data,
            idx,
            base=0,
            layout=SEGMENT_LAYOUT,
            first_seq=1,
            start=0,
            stop=BATCH,
            limit=BATCH,
            budget=1 << 20,
            skip_nodes=(),
            match=None,
            include_meta=True,
            include_tags=True,
            include_data=True,
            verify=False,
        )
        assert page.count == BATCH
    return rounds * BATCH / (time.perf_counter() - started)


def diff_rate(*, rounds: int) -> float:
    """Return records a second of whole, verified `diff` calls of 1000 over sealed segments."""
    with data_dir() as path, topics.open(path) as log:
        for _ in range(100):
            log.append_json("read", body())
        log.checkpoint()
        started = time.perf_counter()
        for turn in range(rounds):
            page = log.diff("read", from_seq=(turn % 99) * BATCH, limit=BATCH)
            assert page.count == BATCH
        return rounds * BATCH / (time.perf_counter() - started)


def microseconds_near_head(log: topics.Log, topic: str, *, rounds: int) -> float:
    """Return the median time of a `diff` of the last 100 records."""
    head = log.state(topic).head_seq
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        page = log.diff(topic, from_seq=head - 100, limit=100)
        times.append(time.perf_counter() - started)
        assert page.count == 100
    return sorted(times)[len(times) // 2] * 1e6
