"""A log on hostile disks that a test can stop, kill or cut, and start again."""

from typing import Any

import msgspec

from topics.config import ServerConfig
from topics.embedded import Log
from topics.limits import KIB
from topics.model.diff import Page
from topics.testing.hostile_disk import HostileDisk
from topics.testing.manual_clock import ManualClock


class Place:
    """One data directory through the lives of its processes."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.disk = HostileDisk()
        self.cold_disk: HostileDisk | None = HostileDisk()
        self.config = ServerConfig(
            wal_shards=1, wal_file_bytes=4 * KIB, segment_max_events=4, hot_retain_segments=0
        )
        self.log = self.open()

    def open(self, **settings: Any) -> Log:  # noqa: ANN401 - settings of ServerConfig
        self.config = msgspec.structs.replace(self.config, **settings)
        self.log = Log(
            self.config,
            disk=self.disk,
            cold_disk=self.cold_disk,
            clock=self.clock,
            background=False,
        )
        return self.log

    def stop(self, **settings: Any) -> Log:  # noqa: ANN401 - settings of ServerConfig
        """Stop cleanly and start again."""
        self.log.close()
        return self.open(**settings)

    def kill(self, **settings: Any) -> Log:  # noqa: ANN401 - settings of ServerConfig
        """Kill the process, keep the page cache, start again."""
        self.disk = self.disk.kill()
        self.cold_disk = self.cold_disk and self.cold_disk.kill()
        return self.open(**settings)

    def cut(self, seed: int = 0, **settings: Any) -> Log:  # noqa: ANN401 - settings of ServerConfig
        """Cut the power and start again; seed 0 loses all that was not synced."""
        self.disk = self.disk.power_cut(seed)
        self.cold_disk = self.cold_disk and self.cold_disk.power_cut(seed)
        return self.open(**settings)

    def fill(self, topic: str, count: int, **fields: Any) -> None:  # noqa: ANN401 - of a record
        for i in range(count):
            self.log.append(topic, [{"data": i, **fields}])


def gap_of(page: Page) -> tuple[int, int, str] | None:
    gap = page.tombstone
    return None if gap is None else (gap.gap_from, gap.gap_to, gap.reason)


def seqs_of(page: Page) -> list[int]:
    return [record.seq for record in page.records]
