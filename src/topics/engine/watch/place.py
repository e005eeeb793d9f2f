"""Where a watcher stands in one topic, through all the lives the topic's name may have."""

from collections.abc import Iterable, Mapping

from topics.engine.topics.topic import Topic
from topics.engine.watch.event_id import LIFE, encode_event_id
from topics.engine.watch.feed import Options

GONE = 0
"""The life of a name without a topic; a living topic's is its id."""


class Place:
    """Keeps: everything up to `seq` in this `life` was sent, announced, or is not to be sent."""

    __slots__ = (
        "asked", "by_pattern", "ended", "first_life", "fresh", "life", "live", "name",
        "options", "seq", "topic",
    )  # fmt: skip

    def __init__(
        self, name: str, topic: Topic | None, seq: int, *, asked: bool, by_pattern: bool
    ) -> None:
        self.name = name
        self.topic = topic
        self.seq = seq
        self.asked = asked
        """There when the watch was made; others came later by a pattern, and began at 0."""
        self.by_pattern = by_pattern
        self.life = self.first_life = GONE if topic is None else topic.id
        self.live = False
        """Everything was sent, and the watcher was told so."""
        self.fresh = True
        """Nothing was read since the watcher connected."""
        self.ended = False
        """The end of its window was reached, and the watcher was told so."""
        self.options: Options | None = None
        """The watcher's, between two times; None where there are none."""

    @property
    def until_ts(self) -> int:
        return 0 if self.options is None else self.options.request.until_ts

    def begin(self, topic: Topic) -> None:
        """Follow a new life of the name, from its start."""
        self.topic = topic
        self.life, self.seq, self.live, self.ended = topic.id, 0, False, False
        self.first_life = self.first_life or topic.id

    def end(self) -> int:
        """Note that the topic is gone; return the last seq it is known to have had."""
        topic = self.topic
        head_seq = topic.head_seq if topic is not None and topic.id == self.life else self.seq
        self.life, self.seq, self.live = GONE, 0, False
        return head_seq

    def resume(self, cursors: Mapping[str, int]) -> None:
        """Stand where an id says, back or ahead: what is known here is older."""
        if self.name in cursors:
            self.life = cursors.get(LIFE + self.name, self.first_life)
            self.seq = cursors[self.name]

    def rewind(self, cursors: Mapping[str, int]) -> None:
        """Go back to where an id says; never ahead."""
        if self.name not in cursors:
            if not self.asked:  # the id is older than this place
                self.life, self.seq = self.first_life, 0
            return
        seq, life = cursors[self.name], cursors.get(LIFE + self.name, self.first_life)
        if life == self.life:
            self.seq = min(self.seq, seq)
        elif life == GONE:
            self.seq = 0
        elif self.life == GONE or life < self.life:
            self.life, self.seq = life, seq


def event_id_of(places: Iterable[Place]) -> bytes:
    cursors: dict[str, int] = {}
    for place in places:
        cursors[place.name] = place.seq
        if place.life != place.first_life:
            cursors[LIFE + place.name] = place.life
    return encode_event_id(cursors)
