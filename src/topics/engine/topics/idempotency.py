"""Writes that must not happen twice: keys for a window, producers until they were silent for long.

Keeps: what is remembered follows from the log alone, whoever reads it and when. A producer is taken
for unknown once it wrote nothing for `producer_expiry_ms`: that is decided by the time of the write
that asks. Letting its entry go only frees the memory.
"""

import struct
from typing import Final

from topics.errors import LimitReached
from topics.model.append import WriteOptions
from topics.model.topic_config import TopicConfig
from topics.storage.snapshots.snapshot import DedupeEntry
from topics.storage.wal.frame import Dedupe

PRODUCER_HISTORY = 64
"""Writes of one producer whose seqs are remembered; older repeats are known, their seqs are not."""
OWN_PREFIX: Final = "$"
"""Of the server's own producers, which no client may use: few, and never forgotten."""

# One write as bytes: objects would take three times the room. Fields are added at the end.
_KEY = struct.Struct("<QIQ")
"""first_seq, count, ts."""
_WRITE = struct.Struct("<QQIQ")
"""producer_seq, then as above."""
_UNKNOWN: Final = DedupeEntry(first_seq=0, count=0, ts=0)

SavedKeys = dict[str, DedupeEntry | bytes]
SavedProducers = dict[str, list[tuple[int, DedupeEntry]] | bytes]


class Idempotency:
    """What one topic remembers of finished writes. Owned by the topic's shard lock."""

    __slots__ = ("_keys", "_own", "_producers")

    def __init__(self) -> None:
        self._keys: dict[str, bytes] = {}
        """In the order of their times."""
        self._producers: dict[str, bytes] = {}
        """The last writes of each, ascending; in the order of their last writes."""
        self._own: dict[str, bytes] = {}

    def find(
        self, options: WriteOptions, *, now_ms: int, config: TopicConfig
    ) -> DedupeEntry | None:
        """Return the first write of this key or producer seq, if it is remembered."""
        if options.producer_id is not None and options.producer_seq is not None:
            found = self._find_producer(
                options.producer_id,
                options.producer_seq,
                now_ms=now_ms,
                expiry_ms=config.producer_expiry_ms,
            )
            if found is not None:
                return found
        if options.idempotency_key is not None:
            packed = self._keys.get(options.idempotency_key)
            if packed is not None:
                entry = DedupeEntry(*_KEY.unpack(packed))
                if now_ms - entry.ts <= config.idempotency_window_ms:
                    return entry
        return None

    def check_room(
        self,
        options: WriteOptions,
        *,
        now_ms: int,
        config: TopicConfig,
        max_keys: int,
        max_producers: int,
    ) -> None:
        """Refuse a write whose key or producer would be one too many: none is forgotten early."""
        key, producer_id = options.idempotency_key, options.producer_id
        wants_key = key is not None and max_keys and len(self._keys) >= max_keys
        wants_producer = (
            producer_id is not None and max_producers and len(self._producers) >= max_producers
        )
        if not (wants_key or wants_producer):
            return
        self.forget_old(now_ms=now_ms, config=config)
        if wants_key and key not in self._keys and len(self._keys) >= max_keys:
            raise LimitReached("max_idempotency_keys", max_keys)
        if (
            wants_producer
            and producer_id is not None
            and not producer_id.startswith(OWN_PREFIX)
            and producer_id not in self._producers
            and len(self._producers) >= max_producers
        ):
            raise LimitReached("max_producers", max_producers)

    def remember(self, written: Dedupe, *, ts: int, window_ms: int, expiry_ms: int) -> None:
        """Take in a write that got its seqs, or was found again in the WAL.

        Twice changes nothing.
        """
        if written.key is not None:
            self._remember_key(written.key, written, ts=ts)
            self._forget_keys(now_ms=ts, window_ms=window_ms)
        if written.producer_id is not None:
            self._remember_producer(written.producer_id, written, ts=ts, expiry_ms=expiry_ms)

    def _remember_key(self, key: str, written: Dedupe, *, ts: int) -> None:
        known = self._keys.pop(key, None)
        if known is None or _KEY.unpack(known)[0] < written.first_seq:
            known = _KEY.pack(written.first_seq, written.count, ts)
        self._keys[key] = known

    def _remember_producer(
        self, producer_id: str, written: Dedupe, *, ts: int, expiry_ms: int
    ) -> None:
        is_own = producer_id.startswith(OWN_PREFIX)
        producers = self._own if is_own else self._producers
        writes = producers.get(producer_id, b"")
        if writes:
            last_seq, first_seq, _, last_ts = _last(writes)
            if written.first_seq <= first_seq:
                return  # known already: a replay meets it twice
            if expiry_ms and not is_own and ts - last_ts > expiry_ms:
                writes = b""  # whether a sweep came by meanwhile or not
            elif written.producer_seq <= last_seq:
                # It was accepted: what is above was forgotten then, by a crash or another config.
                writes = _below(writes, written.producer_seq)
        writes += _WRITE.pack(written.producer_seq, written.first_seq, written.count, ts)
        producers.pop(producer_id, None)
        producers[producer_id] = writes[-PRODUCER_HISTORY * _WRITE.size :]

    def last_of(self, producer_id: str) -> tuple[int, int] | None:
        """Return the newest `producer_seq` of a producer, and the last seq which that write got."""
        writes = self._writes_of(producer_id)
        if not writes:
            return None
        producer_seq, first_seq, count, _ = _last(writes)
        return producer_seq, first_seq + count - 1

    def forget(self, written: Dedupe) -> None:
        """Undo `remember` for a write that failed."""
        if written.key is not None:
            self._keys.pop(written.key, None)
        producer_id = written.producer_id
        if producer_id is not None:
            producers = self._own if producer_id.startswith(OWN_PREFIX) else self._producers
            writes = producers.get(producer_id, b"")
            if writes and _last(writes)[1] == written.first_seq:
                producers[producer_id] = writes[: -_WRITE.size]
                if len(writes) == _WRITE.size:
                    del producers[producer_id]

    def forget_old(self, *, now_ms: int, config: TopicConfig) -> None:
        """Drop the keys whose window is over, and the producers that were silent for too long."""
        self._forget_keys(now_ms=now_ms, window_ms=config.idempotency_window_ms)
        producers, expiry_ms = self._producers, config.producer_expiry_ms
        while producers and expiry_ms:
            oldest = next(iter(producers))
            if now_ms - _last(producers[oldest])[3] <= expiry_ms:
                return
            del producers[oldest]

    def _forget_keys(self, *, now_ms: int, window_ms: int) -> None:
        keys = self._keys
        while keys:
            oldest = next(iter(keys))
            if now_ms - _KEY.unpack(keys[oldest])[2] <= window_ms:
                return
            del keys[oldest]

    def save(self) -> tuple[SavedKeys, SavedProducers]:
        """Return what is remembered, without looking at each: there may be very many."""
        return {**self._keys}, {**self._producers, **self._own}

    def load(self, keys: SavedKeys, producers: SavedProducers) -> None:
        """Take over what a snapshot has saved; the first versions saved objects."""
        self._keys = {key: _packed_key(entry) for key, entry in keys.items()}
        writes = {name: _packed_writes(saved) for name, saved in producers.items()}
        self._own = {name: found for name, found in writes.items() if name[:1] == OWN_PREFIX}
        clients = [
            (name, found) for name, found in writes.items() if found and name not in self._own
        ]
        self._producers = dict(sorted(clients, key=lambda client: _last(client[1])[3]))

    @property
    def is_empty(self) -> bool:
        return not (self._keys or self._producers)

    @property
    def keys_known(self) -> int:
        return len(self._keys)

    @property
    def producers_known(self) -> int:
        return len(self._producers) + len(self._own)

    def _writes_of(self, producer_id: str) -> bytes:
        producers = self._own if producer_id.startswith(OWN_PREFIX) else self._producers
        return producers.get(producer_id, b"")

    def _find_producer(
        self, producer_id: str, producer_seq: int, *, now_ms: int, expiry_ms: int
    ) -> DedupeEntry | None:
        writes = self._writes_of(producer_id)
        if not writes:
            return None
        last_seq, _, _, last_ts = _last(writes)
        if producer_seq > last_seq:
            return None
        is_own = producer_id.startswith(OWN_PREFIX)
        if expiry_ms and not is_own and now_ms - last_ts > expiry_ms:
            return None
        for known_seq, first_seq, count, ts in _WRITE.iter_unpack(writes):
            if known_seq == producer_seq:
                return DedupeEntry(first_seq, count, ts)
        return _UNKNOWN


def _last(writes: bytes) -> tuple[int, int, int, int]:
    found: tuple[int, int, int, int] = _WRITE.unpack_from(writes, len(writes) - _WRITE.size)
    return found


def _below(writes: bytes, producer_seq: int) -> bytes:
    return b"".join(_WRITE.pack(*w) for w in _WRITE.iter_unpack(writes) if w[0] < producer_seq)


def _packed_key(entry: DedupeEntry | bytes) -> bytes:
    if isinstance(entry, bytes):
        return entry
    return _KEY.pack(entry.first_seq, entry.count, entry.ts)


def _packed_writes(saved: list[tuple[int, DedupeEntry]] | bytes) -> bytes:
    if isinstance(saved, bytes):
        return saved
    return b"".join(
        _WRITE.pack(producer_seq, entry.first_seq, entry.count, entry.ts)
        for producer_seq, entry in saved
    )
