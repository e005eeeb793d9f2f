"""`POST /v0/topics/:topic` where the topic has partitions: one write, many logs, one answer."""

from typing import TYPE_CHECKING

from topics.api.exchange import Exchange
from topics.api.parking import PATIENCE_S
from topics.engine.partitions import Part, Spread
from topics.engine.request import Write
from topics.engine.topics.partitioned import Partitioned
from topics.errors import Throttled, TopicsError

if TYPE_CHECKING:
    from topics.api.app import App


def append_partitioned(app: "App", exchange: Exchange, spread: Spread, write: Write) -> None:
    """Write to partitions; a part that finds no room waits for it, the others do not."""
    answer = _Answer(app, exchange, patient=write.patient)
    spread.on_done = answer.settle
    if write.patient and app.parking.rows:
        busy = [part for part in spread.parts if app.parking.is_busy(part.shard)]
        if busy:  # what came before this write still waits
            answer.park(spread, busy[0], spread.parts)
            return
    app.ready_log.submit_parts(spread, spread.parts)


def deal(app: "App", exchange: Exchange, parent: Partitioned) -> bool:
    """Write with all others of this turn; False, and nothing was done, if that is not all."""
    if app.parking.rows:
        return False
    answer = _Answer(app, exchange, patient=True)
    return app.ready_log.take_spread(parent, exchange.body, answer.settle)


class _Answer:
    """What is left to do when no part of the write is under way any more."""

    __slots__ = ("app", "exchange", "patient", "waited_ms")

    def __init__(self, app: "App", exchange: Exchange, *, patient: bool) -> None:
        self.app = app
        self.exchange = exchange
        self.patient = patient
        self.waited_ms = 0.0

    def settle(self, spread: Spread) -> None:
        throttled = spread.throttled
        waits = bool(throttled) and self.patient and self.waited_ms < PATIENCE_S * 1000
        try:
            if waits:
                self.park(spread, throttled[0], throttled)
                return
            spread.check()
            self._reply(spread)
        except TopicsError as error:
            self._fail(spread, error)
        spread.end()

    def park(self, spread: Spread, first: Part, parts: list[Part]) -> None:
        """Try some parts again when the log has room."""
        size = sum(len(part.batch.frames) for part in parts)

        def attempt(waited_ms: float) -> None:
            self.waited_ms = waited_ms
            if waited_ms < PATIENCE_S * 1000:
                for part in parts:
                    self.app.engine.check_room(part.shard, len(part.batch.frames))
            self.app.ready_log.submit_parts(spread, parts)

        self.app.parking.park(first.shard, self.exchange, attempt, size=size)

    def _fail(self, spread: Spread, error: TopicsError) -> None:
        """Answer with what went wrong; of a write that could not even wait, with what went well."""
        if isinstance(error, Throttled):
            try:
                spread.check()
            except TopicsError as told:
                error = told
        self.exchange.fail(error)

    def _reply(self, spread: Spread) -> None:
        exchange, parts = self.exchange, spread.parts
        syncs = spread.parent.config.durable
        exchange.reply(
            200,
            b'{"topic":"%b","placements":%b%b,"count":%d,"created":false,"deduped":%b,'
            b'"performance":{"server_total_ms":%.3f,"wal_append_ms":%.3f,"fsync_ms":%.3f%b}}'
            % (
                spread.parent.name.encode(),
                encode_placements(parts),
                self._seqs(spread),
                spread.count,
                b"true" if spread.deduped else b"false",
                exchange.elapsed_ms(),
                max([part.shard.commit.last_write_s for part in parts]) * 1000,
                max([part.shard.commit.last_sync_s for part in parts]) * 1000 if syncs else 0.0,
                b',"throttle_wait_ms":%.3f' % self.waited_ms if self.waited_ms else b"",
            ),
        )

    def _seqs(self, spread: Spread) -> bytes:
        if self.exchange.head.query and not self.exchange.flag("return_seqs", default=True):
            return b""
        return b',"seqs":%b' % spread.format_seqs()


def encode_placements(parts: list[Part]) -> bytes:
    """Return the placements as JSON: by hand, it is a third of the time of this answer."""
    return b"[%b]" % b",".join(
        [
            b'{"partition":%d,"topic":"%b","first_seq":%d,"last_seq":%d,"count":%d}'
            % (
                part.topic.partition,
                part.topic.name.encode(),
                part.first_seq,
                part.first_seq + part.count - 1 if part.count else 0,
                part.count,
            )
            for part in parts
        ]
    )
