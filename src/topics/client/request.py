"""What is asked of a server and what came back, before anybody decodes it."""

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Request(Struct, frozen=True, kw_only=True):
    """One HTTP request; `path` is encoded and carries the query."""

    method: str
    path: str
    body: bytes | None = None
    accept: str = "application/json"
    last_event_id: str | None = None


class Response(Struct, frozen=True, kw_only=True):
    """One whole answer."""

    status: int
    retry_after_s: float | None
    body: bytes


class Call(Struct, Generic[T], frozen=True, kw_only=True):
    """A request, how to read its answer, and whether it may be sent again.

    `repeatable`: doing it twice is the same as doing it once, so it may be sent again although the
    first one may have arrived. `name` is what the path names, for errors.
    """

    request: Request
    decode: Callable[[bytes], T]
    repeatable: bool
    name: str = ""
    wait_ms: int = 0


Flow = Generator[Call[Any], Any, T]
"""Calls one after the other: each is sent the decoded answer to the one before."""
