"""The calls of bulk work and of operators: one part of `Topics`.

Reference: docs/reference/segments.md, docs/reference/uploads.md, docs/operating/backup.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from topics.client import bulk_calls
from topics.client.request import Call
from topics.limits import DEFAULT_RANGE_BYTES
from topics.model.backups import BackedUp
from topics.model.compact import COMPACT_SEGMENTS, Compacted
from topics.model.frames import RangePage
from topics.model.segments import Manifest, PinState
from topics.model.tickets import Ticket
from topics.model.uploads import Attached, BuiltSegment, UploadState

T = TypeVar("T")
LONG_S: Final = 3600.0
"""For what is answered when all bytes of a topic, or of all topics, were read."""


class BulkFace(ABC):
    """What reads and makes whole files."""

    @abstractmethod
    def _call(self, call: Call[T], *, retry_for_s: float | None = None) -> T: ...

    def manifest(self, topic: str, *, pin_ms: int | None = None) -> Manifest:
        """Name the files of a topic; with `pin_ms` they stay as they are for so long."""
        return self._call(bulk_calls.manifest(topic, pin_ms=pin_ms))

    def renew_pin(self, pin: str, *, pin_ms: int) -> PinState:
        """Hold files for longer."""
        return self._call(bulk_calls.renew_pin(pin, pin_ms=pin_ms))

    def release_pin(self, pin: str) -> bool:
        """Let files go."""
        return self._call(bulk_calls.release_pin(pin))

    def read_range(
        self,
        topic: str,
        *,
        from_seq: int = 0,
        to_seq: int = 0,
        max_bytes: int = DEFAULT_RANGE_BYTES,
        epoch: int | None = None,
    ) -> RangePage:
        """Read what comes after `from_seq`, up to `to_seq`, as the frames that are stored."""
        return self._call(
            bulk_calls.read_range(
                topic, from_seq=from_seq, to_seq=to_seq, max_bytes=max_bytes, epoch=epoch
            )
        )

    def begin_upload(self, topic: str, **config: Any) -> UploadState:  # noqa: ANN401 - any JSON
        """Begin a topic out of segments that you build."""
        return self._call(bulk_calls.begin_upload(topic, config))

    def attach(
        self, upload: str, segments: Sequence[BuiltSegment], *, timeout_s: float = LONG_S
    ) -> Attached:
        """Let the topic begin, whole or not at all."""
        return self._call(bulk_calls.attach(upload, segments, timeout_s=timeout_s))

    def abandon_upload(self, upload: str) -> bool:
        """Give an upload up, with its files."""
        return self._call(bulk_calls.abandon_upload(upload))

    def compact(
        self,
        topic: str,
        *,
        min_dead_ratio: float = 0.5,
        max_segments: int = COMPACT_SEGMENTS,
        timeout_s: float = LONG_S,
    ) -> Compacted:
        """Rewrite cold segments of which more than this share is dead; call again for the rest."""
        return self._call(
            bulk_calls.compact(
                topic,
                min_dead_ratio=min_dead_ratio,
                max_segments=max_segments,
                timeout_s=timeout_s,
            )
        )

    def backup(self, name: str, *, timeout_s: float = LONG_S) -> BackedUp:
        """Have everything copied, as it is at one moment, to `name` in the server's folder."""
        return self._call(bulk_calls.backup(name, timeout_s=timeout_s))

    def ticket(self) -> Ticket:
        """Get a word that opens one stream, once: for a browser, which cannot send the key."""
        return self._call(bulk_calls.ticket())
