"""Where the segments of a topic go: hot disk, cold store, or memory for ephemeral records."""

from topics.storage.disk.disk import Disk
from topics.storage.disk.open_maps import OpenMaps
from topics.storage.disk.ram_disk import RamDisk
from topics.storage.segments.segment import Segment
from topics.storage.segments.store import FolderStore, SegmentStore


class Stores:
    """The tiers of one engine."""

    def __init__(self, hot_disk: Disk, *, cold: SegmentStore | None) -> None:
        self.hot_disk = hot_disk
        self.hot: SegmentStore = FolderStore(hot_disk, mapped=True)
        self.ram_disk: Disk = RamDisk()
        self.ram: SegmentStore = FolderStore(self.ram_disk, mapped=True)
        self.cold = cold
        self.maps = OpenMaps()

    def new_segment(self, topic_id: int, first_seq: int, *, durable: bool) -> Segment:
        disk, store = (self.hot_disk, self.hot) if durable else (self.ram_disk, self.ram)
        return Segment(disk, store, self.maps, topic_id=topic_id, first_seq=first_seq)

    def is_durable(self, segment: Segment) -> bool:
        return segment.disk is self.hot_disk

    def remove_topic(self, topic_id: int) -> None:
        """Remove every file of a deleted topic, the hot ones last: a restart finds the rest."""
        for store in (self.ram, self.cold, self.hot):
            if store is not None:
                store.remove_topic(topic_id)

    def remove_hot_files(self, segment: Segment) -> None:
        """Remove what a segment has on its own disk: the cold tier is tidied in its own time."""
        FolderStore(segment.disk, mapped=True).remove(segment.topic_id, segment.first_seq)
