"""What the workers of both faces share: how they are set, and when a failed job comes again."""

import logging
import secrets

from msgspec import Struct

from topics.errors import RequestError
from topics.model.queues import Job

LOGGER = logging.getLogger("topics.worker")
RENEWALS = 3
"""A lease is renewed this many times in its length."""
PAUSE_S = 0.5
"""How long a worker waits at most before it looks whether it should stop."""
AWAY_S = 1.0
"""How long it waits before it asks a server again that is away."""


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """How a worker works."""

    concurrency: int = 1
    lease_ms: int | None = None
    """None: as the queue has it."""
    backoff_ms: int = 1_000
    backoff_max_ms: int = 60_000
    idle_ms: int = 1_000
    """How long an idle worker waits for a new job before it looks for returned ones."""

    def __post_init__(self) -> None:
        for name in ("concurrency", "lease_ms", "backoff_max_ms", "idle_ms"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RequestError(f"{name} must be at least 1")
        if self.backoff_ms < 0:
            raise RequestError("backoff_ms must not be negative")


def plan_backoff(settings: WorkerSettings, job: Job) -> int:
    """Return after how many milliseconds a job that failed may be claimed again: ever later."""
    doublings = min(max(job.deliveries - 1, 0), 30)
    return int(min(settings.backoff_ms * 2**doublings, settings.backoff_max_ms))


def new_node(kind: str = "worker") -> str:
    """Return a name that nobody else has."""
    return f"{kind}-{secrets.token_hex(8)}"
