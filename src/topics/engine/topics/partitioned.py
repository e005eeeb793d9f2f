"""A partitioned topic: a name and a config for many topics, which hold its records.

It is no `Topic`: it has no seqs and no files. Its partitions are ordinary topics, called after it.
Keeps: `partitions` is swapped whole, and only for a longer one; partition n is at place n.
"""

from topics.engine.topics.topic import Topic
from topics.errors import RequestError
from topics.limits import MAX_NAME_CHARS
from topics.model.topic_config import TopicConfig


class Partitioned:
    """The parent of its partitions."""

    def __init__(
        self,
        topic_id: int,
        name: str,
        *,
        config: TopicConfig,
        created_ts: int,
        counts: tuple[int, ...],
    ) -> None:
        self.id = topic_id
        self.name = name
        self.config = config
        self.created_ts = created_ts
        self.counts = counts
        """Every number of partitions it ever had, oldest first; the last is the one it should have.

        A write is placed by `len(partitions)`: while it grows, that is the one before.
        """
        self.partitions: tuple[Topic, ...] = ()
        self.turn = 0
        """Whose turn it is to get records without a key."""

    def next_turn(self) -> int:
        """Return the turn and end it; two threads at once may get the same."""
        turn = self.turn
        self.turn = turn + 1
        return turn

    @property
    def partition_names(self) -> list[str]:
        return [topic.name for topic in self.partitions]


def partition_name(parent: str, number: int) -> str:
    return f"{parent}-{number}"


def parse_partition_name(name: str) -> tuple[str, int] | None:
    """Return the parent that a name would belong to, were there one, and the number."""
    parent, _, digits = name.rpartition("-")
    if not parent or not (digits.isascii() and digits.isdigit()):
        return None
    return (parent, int(digits)) if str(int(digits)) == digits else None


def check_partition_names(parent: str, partitions: int) -> None:
    longest = partition_name(parent, partitions - 1)
    if len(longest) > MAX_NAME_CHARS:
        raise RequestError(
            f"partition {longest[:40]}…-{partitions - 1} would have a name of {len(longest)} "
            f"characters, the limit is {MAX_NAME_CHARS}: choose a shorter name"
        )
