"""What was submitted, acknowledged and made durable of every topic, moment by moment.

Keeps: of the versions of a topic, `versions[acked]` is what its writers were told,
`versions[durable]` is what no power cut may take; later versions are operations in flight. A crash
must leave exactly one version from there on.
"""

from collections.abc import Callable
from typing import Self

from topics.testing.crash_model import TopicModel

Version = TopicModel | None
"""None: there is no such topic."""


class Track:
    """The versions of one topic name."""

    def __init__(self, version: Version = None) -> None:
        self.versions: list[Version] = [version]
        self.acked = 0
        self.durable = 0

    @property
    def acked_version(self) -> Version:
        return self.versions[self.acked]

    @property
    def newest(self) -> Version:
        return self.versions[-1]

    @property
    def head_seq(self) -> int:
        """The highest seq that anyone was told of in this life of the topic."""
        version = self.acked_version
        return version.head_seq if version else 0

    def copy(self) -> "Track":
        copied = Track()
        copied.versions = self.versions.copy()
        copied.acked, copied.durable = self.acked, self.durable
        return copied


class History:
    """All topics of one run."""

    def __init__(self) -> None:
        self.tracks: dict[str, Track] = {}

    def track(self, topic: str) -> Track:
        return self.tracks.setdefault(topic, Track())

    def newest(self, topic: str) -> Version:
        return self.track(topic).newest

    def begin(self, topic: str, change: Callable[[Version], Version]) -> int:
        """Note that an operation is under way: from here on a crash may leave this version."""
        track = self.track(topic)
        track.versions.append(change(track.newest))
        return len(track.versions) - 1

    def ack(self, topic: str, *, durable: bool, at: int = -1) -> None:
        """Note that its writer was told that it is done: the newest version, or the one at `at`."""
        track = self.track(topic)
        track.acked = at if at >= 0 else len(track.versions) - 1
        if durable:
            track.durable = track.acked

    def all_durable(self) -> None:
        for track in self.tracks.values():
            track.durable = track.acked

    def adopt(self, topic: str, version: Version) -> None:
        """Go on from what a restart found."""
        self.tracks[topic] = Track(version)

    def copy(self) -> Self:
        copied = type(self)()
        copied.tracks = {name: track.copy() for name, track in self.tracks.items()}
        return copied
