"""The calls of bulk work and of operators, awaited: one part of `AsyncTopics`.

The same names as `topics.client.bulk`, where they are explained.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

from topics.client import bulk_calls
from topics.client.bulk import LONG_S
from topics.client.request import Call
from topics.limits import DEFAULT_RANGE_BYTES
from topics.model.backups import BackedUp
from topics.model.compact import COMPACT_SEGMENTS, Compacted
from topics.model.frames import RangePage
from topics.model.segments import Manifest, PinState
from topics.model.tickets import Ticket
from topics.model.uploads import Attached, BuiltSegment, UploadState

T = TypeVar("T")


class AsyncBulkFace(ABC):
    """What reads and makes whole files, awaited."""

    @abstractmethod
    async def _call(self, call: Call[T], *, retry_for_s: float | None = None) -> T: ...

    async def manifest(self, topic: str, *, pin_ms: int | None = None) -> Manifest:
        return await self._call(bulk_calls.manifest(topic, pin_ms=pin_ms))

    async def renew_pin(self, pin: str, *, pin_ms: int) -> PinState:
        return await self._call(bulk_calls.renew_pin(pin, pin_ms=pin_ms))

    async def release_pin(self, pin: str) -> bool:
        return await self._call(bulk_calls.release_pin(pin))

    async def read_range(
        self,
        topic: str,
        *,
        from_seq: int = 0,
        to_seq: int = 0,
        max_bytes: int = DEFAULT_RANGE_BYTES,
        epoch: int | None = None,
    ) -> RangePage:
        return await self._call(
            bulk_calls.read_range(
                topic, from_seq=from_seq, to_seq=to_seq, max_bytes=max_bytes, epoch=epoch
            )
        )

    async def begin_upload(self, topic: str, **config: Any) -> UploadState:  # noqa: ANN401 - any JSON
        """Begin a topic out of segments that you build."""
        return await self._call(bulk_calls.begin_upload(topic, config))

    async def attach(
        self, upload: str, segments: Sequence[BuiltSegment], *, timeout_s: float = LONG_S
    ) -> Attached:
        return await self._call(bulk_calls.attach(upload, segments, timeout_s=timeout_s))

    async def abandon_upload(self, upload: str) -> bool:
        return await self._call(bulk_calls.abandon_upload(upload))

    async def compact(
        self,
        topic: str,
        *,
        min_dead_ratio: float = 0.5,
        max_segments: int = COMPACT_SEGMENTS,
        timeout_s: float = LONG_S,
    ) -> Compacted:
        return await self._call(
            bulk_calls.compact(
                topic,
                min_dead_ratio=min_dead_ratio,
                max_segments=max_segments,
                timeout_s=timeout_s,
            )
        )

    async def backup(self, name: str, *, timeout_s: float = LONG_S) -> BackedUp:
        return await self._call(bulk_calls.backup(name, timeout_s=timeout_s))

    async def ticket(self) -> Ticket:
        return await self._call(bulk_calls.ticket())
