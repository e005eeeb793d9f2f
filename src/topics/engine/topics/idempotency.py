"""Writes that must not happen twice: keys for a window, producers for the life of a topic."""

from topics.model.append import WriteOptions
from topics.storage.snapshots.snapshot import DedupeEntry
from topics.storage.wal.frame import Dedupe

PRODUCER_HISTORY = 64
"""Writes of one producer whose seqs are remembered; older repeats are known, their seqs are not."""


class Idempotency:
    """What one topic remembers of finished writes. Owned by the topic's shard lock."""

    def __init__(self) -> None:
        self._keys: dict[str, DedupeEntry] = {}
        self._producers: dict[str, dict[int, DedupeEntry]] = {}

    def find(self, options: WriteOptions, *, now_ms: int, window_ms: int) -> DedupeEntry | None:
        """Return the first write of this key or producer seq, if it is remembered."""
        if options.producer_id is not None and options.producer_seq is not None:
            found = self._find_producer(options.producer_id, options.producer_seq)
            if found is not None:
                return found
        if options.idempotency_key is not None:
            entry = self._keys.get(options.idempotency_key)
            if entry is not None and now_ms - entry.ts <= window_ms:
                return entry
        return None

    def remember(self, written: Dedupe, *, ts: int, window_ms: int) -> None:
        """Take in a write that got its seqs, or was found again in the WAL.

        Twice changes nothing.
        """
        entry = DedupeEntry(written.first_seq, written.count, ts)
        if written.key is not None:
            self._keys.pop(written.key, None)
            self._keys[written.key] = entry
            self.forget_old(now_ms=ts, window_ms=window_ms)
        if written.producer_id is not None:
            history = self._producers.setdefault(written.producer_id, {})
            if not history or written.producer_seq > next(reversed(history)):
                history[written.producer_seq] = entry
                while len(history) > PRODUCER_HISTORY:
                    del history[next(iter(history))]

    def last_of(self, producer_id: str) -> tuple[int, int] | None:
        """Return the newest `producer_seq` of a producer, and the last seq which that write got."""
        history = self._producers.get(producer_id)
        if not history:
            return None
        producer_seq = next(reversed(history))
        entry = history[producer_seq]
        return producer_seq, entry.first_seq + entry.count - 1

    def forget(self, written: Dedupe) -> None:
        """Undo `remember` for a write that failed."""
        if written.key is not None:
            self._keys.pop(written.key, None)
        if written.producer_id is not None:
            self._producers.get(written.producer_id, {}).pop(written.producer_seq, None)

    def forget_old(self, *, now_ms: int, window_ms: int) -> None:
        """Drop the keys whose window is over; they stand in the order of their times."""
        while self._keys:
            oldest = next(iter(self._keys))
            if now_ms - self._keys[oldest].ts <= window_ms:
                return
            del self._keys[oldest]

    def save(self) -> tuple[dict[str, DedupeEntry], dict[str, list[tuple[int, DedupeEntry]]]]:
        return dict(self._keys), {
            p: list(history.items()) for p, history in self._producers.items()
        }

    def load(
        self, keys: dict[str, DedupeEntry], producers: dict[str, list[tuple[int, DedupeEntry]]]
    ) -> None:
        self._keys = dict(keys)
        self._producers = {p: dict(history) for p, history in producers.items()}

    def _find_producer(self, producer_id: str, producer_seq: int) -> DedupeEntry | None:
        history = self._producers.get(producer_id)
        if not history or producer_seq > next(reversed(history)):
            return None
        return history.get(producer_seq, DedupeEntry(first_seq=0, count=0, ts=0))
