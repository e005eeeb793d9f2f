"""What a failed request is told."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from topics.model.performance import Performance


class Failure(Struct, frozen=True, kw_only=True):
    """A code for programs, a message for people, and what else helps."""

    code: str
    message: str
    detail: dict[str, Any] | UnsetType = UNSET


class FailureReply(Struct, frozen=True, kw_only=True):
    """The body of every answer that is not a success."""

    error: Failure
    performance: Performance
