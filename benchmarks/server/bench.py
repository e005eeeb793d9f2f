"""What every part of the measurement is given, and what it returns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.server.errors import CannotMeasure
from benchmarks.server.load import Tools
from benchmarks.server.peers import Peers
from benchmarks.server.plot import Group
from benchmarks.server.processes import Peer, settle
from benchmarks.server.rounds import Course, Measured, Pace
from benchmarks.server.stores import (
    AsgiContender,
    Contender,
    HttpContender,
    NatsContender,
    RedisContender,
    TopicsContender,
)
from benchmarks.server.table import Row


@dataclass(frozen=True)
class Part:
    """What a part found: rows of the table, groups of the plot, how busy the driver was."""

    rows: list[Row]
    groups: list[Group] = field(default_factory=list)
    driver_cpu: float = 0.0


class Bench:
    """The tools, the pace, and all contenders that run."""

    def __init__(self, tools: Tools, peers: Peers, pace: Pace) -> None:
        self.course = Course(tools, pace, lambda: settle(peers.running.values()))
        self.pace = pace
        self.tools = tools
        self._peers = peers
        kinds: dict[str, Callable[[Peer], Contender]] = {
            "Redis everysec": RedisContender,
            "Redis always": RedisContender,
            "JetStream": NatsContender,
            "JetStream 2.15": NatsContender,
            "JetStream always": NatsContender,
            "uvicorn": AsgiContender,
            "granian": AsgiContender,
        }
        self._others = {
            name: kinds.get(name, HttpContender)(peer)
            for name, peer in peers.running.items()
            if name != "topics"
        }

    @property
    def server(self) -> Peer:
        """The server of ours; nothing can be measured without it."""
        if "topics" not in self._peers.running:
            raise CannotMeasure(self._peers.missing["topics"])
        return self._peers.running["topics"]

    def topics(self, durability: str = "disk", *, topic: str = "") -> TopicsContender:
        return TopicsContender(self.server, durability=durability, topic=topic)

    def others(self, names: Sequence[str]) -> list[Contender]:
        return [self._others[name] for name in names if name in self._others]

    def redis(self) -> RedisContender | None:
        found = self._others.get("Redis everysec")
        return found if isinstance(found, RedisContender) else None

    def why_missing(self, names: Sequence[str]) -> str:
        return "; ".join(self._peers.missing.get(name, "it runs") for name in names)


def group(title: str, found: dict[str, Measured]) -> Group:
    return Group(title, [(name, measured.rate) for name, measured in found.items()])
