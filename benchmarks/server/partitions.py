"""Partitions: what it costs to spread the records of each write over eight of them."""

from benchmarks.engine.payloads import body
from benchmarks.server import wire
from benchmarks.server.bench import Bench, Part, group
from benchmarks.server.load import Load
from benchmarks.server.rounds import measure_writes
from benchmarks.server.stores import TopicsContender
from benchmarks.server.table import Row, rate, times

PARTITIONS = 8
BATCH = 100
CONNECTIONS = 64
MOST = 1.3
WHAT = f"partitions, batches of {BATCH} over {PARTITIONS}"


class TaggedContender(TopicsContender):
    """A topic whose records all have tags, in partitions or in one."""

    def __init__(self, plain: TopicsContender, *, partitions: int) -> None:
        super().__init__(plain.peer, topic=f"{plain.topic}-in{partitions}")
        self.name = f"{partitions} partitions" if partitions else "one topic"
        self._partitions = partitions

    def empty(self) -> None:
        self.drop()
        self.create(**({"partitions": self._partitions} if self._partitions else {}))

    def write(self, *, batch: int, connections: int) -> Load:
        content = body(count=batch, tags=batch)
        return Load(
            port=self.port,
            protocol="http",
            requests=[wire.http("POST", f"/v0/topics/{self.topic}", content)],
            records=batch,
            connections=connections,
        )


def spread(bench: Bench) -> Part:
    server = bench.topics()
    plain = TaggedContender(server, partitions=0)
    parts = TaggedContender(server, partitions=PARTITIONS)
    found = measure_writes(bench.course, [plain, parts], batch=BATCH, connections=CONNECTIONS)
    ours, other = found[parts.name], found[plain.name]
    ratio = other.rate / ours.rate
    row = Row(
        f"{WHAT}: time a record",
        rate(ours.rate),
        f"one topic: {rate(other.rate)}",
        times(ratio),
        f"≤ {MOST} ×",
        ratio <= MOST,
    )
    return Part([row], [group(WHAT, found)], ours.driver_cpu)
