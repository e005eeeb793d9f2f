"""Where our errors become HTTP: a status, a body, and when to come back."""

import msgspec

from topics.errors import (
    CorruptData,
    LimitReached,
    MethodNotAllowed,
    NotReady,
    PartlyWritten,
    RetryLater,
    RouterCycle,
    StorageError,
    Throttled,
    TopicExistsIncompatible,
    TopicsError,
)

STATUS_OF_CODE = {
    "invalid_request": 400,
    "batch_too_large": 400,
    "record_too_large": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "topic_not_found": 404,
    "router_not_found": 404,
    "group_not_found": 404,
    "not_found": 404,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "request_timeout": 408,
    "router_cycle": 409,
    "topic_exists_incompatible": 409,
    "topic_not_empty": 409,
    "not_a_queue": 409,
    "backup_exists": 409,
    "group_not_empty": 409,
    "generation_mismatch": 409,
    "payload_too_large": 413,
    "unsupported_media_type": 415,
    "topic_full": 422,
    "throttled": 429,
    "internal": 500,
    "not_ready": 503,
    "disk_full": 507,
    "shutting_down": 503,
}
RETRY_AFTER_S = 1


def describe_error(error: TopicsError) -> tuple[int, dict[str, object]]:
    """Return the status and the value of `error` in the body."""
    told = error.cause if isinstance(error, PartlyWritten) else error
    fields: dict[str, object] = {"code": told.code, "message": str(error)}
    detail = _detail(told)
    if isinstance(error, PartlyWritten):
        detail |= {"placements": error.placements, "failed": error.failed, "seqs": error.placed}
    if detail:
        fields["detail"] = detail
    return STATUS_OF_CODE[told.code], fields


def encode_error(error: TopicsError, *, total_ms: float = 0.0) -> tuple[int, bytes, bytes]:
    """Return status, body and the extra header lines."""
    status, fields = describe_error(error)
    performance = {"server_total_ms": round(total_ms, 3)}
    body = msgspec.json.encode({"error": fields, "performance": performance})
    return status, body, _headers(error, status)


def _detail(error: TopicsError) -> dict[str, object]:
    detail: dict[str, object] = {}
    match error:
        case LimitReached():
            detail = {"limit": error.limit, "max": error.maximum}
        case Throttled():
            detail = {"retry_after_ms": error.retry_after_ms}
        case NotReady():
            detail = {"replay_progress": round(error.progress, 4)}
        case CorruptData() if error.segment is not None:
            detail = {"segment": error.segment}
        case MethodNotAllowed():
            detail = {"allowed": list(error.allowed)}
        case RouterCycle():
            detail = {"cycle": error.cycle}
        case TopicExistsIncompatible() if error.reason:
            detail = {"reason": error.reason}
        case _:
            detail = dict(getattr(error, "detail", {}))
    return detail


def _headers(error: TopicsError, status: int) -> bytes:
    if isinstance(error, PartlyWritten):
        error = error.cause
    if isinstance(error, MethodNotAllowed):
        return b"Allow: " + ", ".join(error.allowed).encode() + b"\r\n"
    if status == 401:
        return b"WWW-Authenticate: Bearer\r\n"
    if isinstance(error, RetryLater | StorageError) and status in (429, 503):
        return b"Retry-After: %d\r\n" % RETRY_AFTER_S
    return b""
