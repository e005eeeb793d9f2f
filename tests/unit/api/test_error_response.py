"""Every error has a status, and a body that says what to do."""

import msgspec
import pytest
from tests.unit.test_errors import CLASSES, built

from topics.api.error_response import STATUS_OF_CODE, encode_error
from topics.api.reasons import status_line
from topics.errors import (
    Closed,
    CorruptData,
    LimitReached,
    MethodNotAllowed,
    NotReady,
    Throttled,
    TopicsError,
    Unauthorized,
)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_has_a_status(kind: type[TopicsError]) -> None:
    error = built(kind)
    status, body, _ = encode_error(error)
    assert status == STATUS_OF_CODE[kind.code]
    shown = msgspec.json.decode(body)["error"]
    assert shown["code"] == kind.code
    assert shown["message"] == str(error)
    assert status_line(status).startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize(
    ("error", "status", "detail", "headers"),
    [
        (LimitReached("max_topics", 3), 429, {"limit": "max_topics", "max": 3}, b"Retry-After: 1"),
        (Throttled(70), 429, {"retry_after_ms": 70}, b"Retry-After: 1"),
        (NotReady(0.25), 503, {"replay_progress": 0.25}, b"Retry-After: 1"),
        (Closed("bye"), 503, None, b"Retry-After: 1"),
        (Unauthorized("who"), 401, None, b"WWW-Authenticate: Bearer"),
        (MethodNotAllowed("PUT", ("GET",)), 405, {"allowed": ["GET"]}, b"Allow: GET"),
        (CorruptData("bad", segment="s.data"), 500, {"segment": "s.data"}, b""),
        (CorruptData("bad"), 500, None, b""),
    ],
    ids=lambda value: type(value).__name__,
)
def test_details_and_headers(
    error: TopicsError, status: int, detail: object, headers: bytes
) -> None:
    found, body, lines = encode_error(error)
    assert found == status
    assert msgspec.json.decode(body)["error"].get("detail") == detail
    assert lines == (headers + b"\r\n" if headers else b"")
