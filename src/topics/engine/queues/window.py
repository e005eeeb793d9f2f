"""Claimers that come at nearly the same time and are dealt jobs together, by threads that block.

The first claimer of a queue opens a window and waits it out for all; the others wait for the first.
"""

import threading
from collections.abc import Callable, Sequence

from topics.clock import Clock
from topics.engine.topics.topic import Topic
from topics.errors import TopicsError
from topics.model.queues import Claimed, ClaimRequest

Serve = Callable[[Topic, Sequence[ClaimRequest]], list[Claimed]]


class _Waiting:
    """One claimer."""

    __slots__ = ("claimed", "error", "over", "request")

    def __init__(self, request: ClaimRequest) -> None:
        self.request = request
        self.over = threading.Event()
        self.claimed: Claimed | None = None
        self.error: TopicsError | None = None


class ClaimWindows:
    """The open windows of one engine, one a queue at most."""

    def __init__(self, clock: Clock, serve: Serve) -> None:
        self._clock = clock
        self._serve = serve
        self._lock = threading.Lock()
        self._open: dict[int, list[_Waiting]] = {}

    def claim(self, topic: Topic, request: ClaimRequest) -> Claimed:
        """Claim with whoever else comes in this window."""
        while True:
            waiting = _Waiting(request)
            with self._lock:
                leads = topic.id not in self._open
                self._open.setdefault(topic.id, []).append(waiting)
            if leads:
                self._lead(topic)
            waiting.over.wait()
            if waiting.error is not None:
                raise waiting.error
            if waiting.claimed is not None:
                return waiting.claimed
            # Whoever led was interrupted: the next window is ours.

    def _lead(self, topic: Topic) -> None:
        gathered: list[_Waiting] = []
        try:
            try:
                self._clock.sleep(topic.config.claim_jitter_ms / 1000)
            finally:
                with self._lock:
                    gathered = self._open.pop(topic.id)
            answers = self._serve(topic, [waiting.request for waiting in gathered])
            for waiting, claimed in zip(gathered, answers, strict=True):
                waiting.claimed = claimed
        except TopicsError as error:
            for waiting in gathered:
                waiting.error = error
        finally:
            for waiting in gathered:
                waiting.over.set()
