"""Pins: segments that readers of the files themselves were promised, for a while.

Owns the table of pins and `Topic.pins`. They live in memory, and time is monotonic.
Keeps: a pin that was given under the shard's lock is seen by whoever decides under it to drop,
rewrite or move a segment; a pin ends by its time, its owner, or the end of its topic.
Reference: docs/reference/segments.md.
"""

import secrets
import threading

from topics.clock import Clock
from topics.engine.topics.topic import Topic
from topics.errors import LimitReached, PinNotFound, RequestError
from topics.limits import MAX_PIN_MS, MAX_PINS
from topics.model.segments import PinState


class Pin:
    """A range of seqs of one topic whose segments stay where and as they are."""

    __slots__ = ("expires_s", "first_seq", "id", "last_seq", "owner", "topic")

    def __init__(
        self, topic: Topic, *, owner: str, first_seq: int, last_seq: int, expires_s: float
    ) -> None:
        self.id = secrets.token_hex(16)
        self.topic = topic
        self.owner = owner
        self.first_seq = first_seq
        self.last_seq = last_seq
        self.expires_s = expires_s

    def holds(self, first_seq: int, last_seq: int) -> bool:
        return first_seq <= self.last_seq and self.first_seq <= last_seq


class Pins:
    """Every pin of one engine. Its lock is the innermost: nothing is taken behind it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._by_id: dict[str, Pin] = {}
        self._released = False

    def __len__(self) -> int:
        now_s = self._clock.monotonic_s()
        return sum(pin.expires_s > now_s for pin in list(self._by_id.values()))

    def add(
        self, topic: Topic, *, owner: str, first_seq: int, last_seq: int, pin_ms: int
    ) -> PinState:
        """Hold the segments of a range; the lock of the topic's shard is held."""
        pin = Pin(
            topic,
            owner=owner,
            first_seq=first_seq,
            last_seq=last_seq,
            expires_s=self._end_of(pin_ms),
        )
        with self._lock:
            self._sweep()
            if len(self._by_id) >= MAX_PINS:
                raise LimitReached("max_pins", MAX_PINS)
            self._by_id[pin.id] = pin
            topic.pins = (*topic.pins, pin)
        return PinState(id=pin.id, expires_in_ms=pin_ms)

    def renew(self, pin_id: str, *, owner: str, pin_ms: int) -> PinState:
        """Let a pin last `pin_ms` from now."""
        expires_s = self._end_of(pin_ms)
        with self._lock:
            self._find(pin_id, owner).expires_s = expires_s
        return PinState(id=pin_id, expires_in_ms=pin_ms)

    def release(self, pin_id: str, *, owner: str) -> None:
        with self._lock:
            self._remove(self._find(pin_id, owner))

    def drop_topic(self, topic: Topic) -> None:
        """Forget the pins of a topic that has ended: its files go whoever reads them."""
        with self._lock:
            for pin in topic.pins:
                self._remove(pin)

    def sweep(self) -> None:
        """Forget the pins that ran out."""
        with self._lock:
            self._sweep()

    def _sweep(self) -> None:
        now_s = self._clock.monotonic_s()
        for pin in [pin for pin in self._by_id.values() if pin.expires_s <= now_s]:
            self._remove(pin)

    def _find(self, pin_id: str, owner: str) -> Pin:
        pin = self._by_id.get(pin_id)
        if pin is None or pin.owner != owner or pin.expires_s <= self._clock.monotonic_s():
            raise PinNotFound
        return pin

    def take_released(self) -> bool:
        """Tell whether pins ended since the last call: what they held back can be done."""
        with self._lock:
            released, self._released = self._released, False
        return released

    def _remove(self, pin: Pin) -> None:
        self._released = True
        self._by_id.pop(pin.id, None)
        pin.topic.pins = tuple(other for other in pin.topic.pins if other is not pin)

    def _end_of(self, pin_ms: int) -> float:
        if not 1 <= pin_ms <= MAX_PIN_MS:
            raise RequestError(f"pin_ms must be a whole number from 1 to {MAX_PIN_MS}")
        return self._clock.monotonic_s() + pin_ms / 1000
