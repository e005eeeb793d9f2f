"""Runs of tags: a look-up meets a merge in the middle."""

from topics.engine.request import encode_write, read_write
from topics.engine.stores import Stores
from topics.kernel import MATCH_EQ, frames_to_segment, stamp_batch
from topics.limits import Limits
from topics.storage.disk.open_maps import OpenMaps
from topics.storage.disk.ram_disk import RamDisk
from topics.storage.segments.segment import Segment
from topics.storage.segments.tag_runs import MERGE_RUNS, TagRuns

TOPIC_ID = 7


class MeddlingDisk(RamDisk):
    """Lets a merge happen when the newest run is about to be mapped."""

    runs: TagRuns | None = None

    def map(self, path: str) -> memoryview:
        runs, self.runs = self.runs, None
        if runs is not None:
            assert runs.merge_once()
        return super().map(path)


def sealed(disk: RamDisk, seq: int) -> Segment:
    body = encode_write([{"data": seq, "tag": "t"}])
    batch = read_write(body, Limits()).batch
    stamp_batch(batch, topic_id=TOPIC_ID, first_seq=seq, ts=1_000, flags=0)
    data, entries = frames_to_segment([(batch.frames, batch.idx, 0, 1)], base=0)
    segment = Stores(disk, cold=None).new_segment(TOPIC_ID, seq, durable=True)
    segment.create_files()
    segment.write_data(0, data)
    segment.write_entries(0, entries)
    segment.grow(entries, data_bytes=len(data))
    segment.seal()
    return segment


def test_a_look_up_finds_everything_though_a_merge_takes_the_files_away() -> None:
    disk = MeddlingDisk()
    runs = TagRuns(disk, OpenMaps(most=1), TOPIC_ID)  # so that every look-up has to map again
    for seq in range(1, MERGE_RUNS + 1):
        segment = sealed(disk, seq)
        runs.add(segment, runs.build(segment))
    disk.runs = runs
    assert runs.lookup((MATCH_EQ, b"t")).tolist() == list(range(1, MERGE_RUNS + 1))
    assert disk.runs is None
