"""Where answers that are no success become the errors of `topics.errors` again."""

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from topics import errors
from topics.client.request import Response
from topics.errors import RequestError, RetryLater, TopicsError


class _Failure(Struct, frozen=True):
    code: str = ""
    message: str = ""
    detail: dict[str, Any] = {}


class _FailureReply(Struct, frozen=True):
    error: _Failure


Make = Callable[[_Failure, str], TopicsError]
_QUOTED = re.compile(r"'([^']+)'")


def failure_of(response: Response, *, name: str) -> TopicsError | None:
    """Return the error that an answer stands for; None for a success."""
    if response.status < 300:
        return None
    try:
        failure = msgspec.json.decode(response.body, type=_FailureReply).error
    except (msgspec.DecodeError, msgspec.ValidationError):
        failure = _Failure(message=f"the server answered with status {response.status}")
    make = _MAKE.get(failure.code) or _plain(_of_status(response.status))
    if "placements" in failure.detail and "failed" in failure.detail:
        return _partly_written(failure, name, make)
    return make(failure, name)


def error_of(code: str, message: str, detail: dict[str, Any], *, name: str) -> TopicsError:
    """Return the error that a stream tells in the middle of it."""
    make = _MAKE.get(code) or _plain(TopicsError)
    return make(_Failure(code, message, detail), name)


def _partly_written(failure: _Failure, name: str, make: Make) -> TopicsError:
    """Make the error of a write that some partitions have: the answer is that of its cause."""
    cause = msgspec.structs.replace(failure, message=failure.message.partition("; partitions ")[0])
    detail = failure.detail
    placed = [(place, seq) for place, seq in detail.get("seqs", ())]
    return errors.PartlyWritten(make(cause, name), detail["placements"], detail["failed"], placed)


def _of_status(status: int) -> type[TopicsError]:
    if status in (429, 502, 503, 504):
        return RetryLater
    return RequestError if status < 500 else TopicsError


def _plain(kind: type[TopicsError]) -> Make:
    return lambda failure, _: kind(failure.message)


def _invalid(failure: _Failure, _: str) -> TopicsError:
    if "field" in failure.detail:
        nearest = failure.detail.get("nearest")
        return errors.UnknownField(failure.message, str(failure.detail["field"]), nearest)
    return RequestError(failure.message)


def _named(kind: Callable[[str], TopicsError]) -> Make:
    """Make an error that knows a name: the one its message has in quotes, else that of the path."""

    def make(failure: _Failure, name: str) -> TopicsError:
        quoted = _QUOTED.search(failure.message)
        return kind(quoted[1] if quoted else name)

    return make


def _incompatible(failure: _Failure, name: str) -> TopicsError:
    if "partitions" in failure.detail:
        topic = failure.detail.get("topic", name)
        return errors.TopicPartitioned(topic, list(failure.detail["partitions"]))
    reason = failure.detail.get("reason")
    if reason == "recreated":
        return errors.TopicRecreated(name, int(failure.detail.get("epoch", 0)))
    return errors.TopicExistsIncompatible(failure.message, reason=reason)


def _not_found(failure: _Failure, _: str) -> TopicsError:
    for kind in (errors.PinNotFound, errors.UploadNotFound):  # their code is that of a route
        if failure.message == str(kind()):
            return kind()
    return errors.RouteNotFound(failure.message)


def _throttled(failure: _Failure, _: str) -> TopicsError:
    detail = failure.detail
    if "limit" in detail:
        return errors.LimitReached(str(detail["limit"]), int(detail.get("max", 0)))
    return errors.Throttled(int(detail.get("retry_after_ms", 1000)))


def _not_ready(failure: _Failure, _: str) -> TopicsError:
    detail = failure.detail
    progress = detail.get("replay_progress")
    if detail.get("limit") == "max_connections":
        return errors.TooManyConnections("max_connections", int(detail.get("max", 0)))
    if detail.get("reason") == "too_many_files":
        return errors.TooManyFiles(failure.message)
    if progress is None:  # a log that takes no more writes: the operator has to look
        return errors.ShardReadOnly(failure.message)
    return errors.NotReady(float(progress))


def _disk_full(failure: _Failure, _: str) -> TopicsError:
    detail = failure.detail
    return errors.DiskFull(
        failure.message,
        free_bytes=detail.get("free_bytes"),
        needed_bytes=detail.get("needed_bytes"),
        largest=detail.get("largest_topics", ()),
    )


def _internal(failure: _Failure, _: str) -> TopicsError:
    segment = failure.detail.get("segment")
    if segment is None:
        return TopicsError(failure.message)
    return errors.CorruptData(failure.message, segment=segment)


_MAKE: dict[str, Make] = {
    "invalid_request": _invalid,
    "batch_too_large": _plain(errors.BatchTooLarge),
    "record_too_large": _plain(errors.RecordTooLarge),
    "topic_not_found": _named(errors.TopicNotFound),
    "topic_exists_incompatible": _incompatible,
    "topic_not_empty": _named(errors.TopicNotEmpty),
    "backup_exists": _plain(errors.BackupExists),
    "topic_full": _named(errors.TopicFull),
    "not_a_queue": _named(errors.NotAQueue),
    "router_not_found": _named(errors.RouterNotFound),
    "group_not_found": _named(errors.GroupNotFound),
    "group_not_empty": _named(errors.GroupNotEmpty),
    "generation_mismatch": lambda failure, _: errors.GenerationMismatch(
        failure.message, int(failure.detail.get("generation", 0))
    ),
    "router_cycle": lambda failure, _: errors.RouterCycle(list(failure.detail.get("cycle", []))),
    "unauthorized": _plain(errors.Unauthorized),
    "forbidden": _plain(errors.Forbidden),
    "not_found": _not_found,
    "method_not_allowed": lambda failure, _: errors.MethodNotAllowed(
        "the method", tuple(failure.detail.get("allowed", ()))
    ),
    "not_acceptable": _plain(errors.NotAcceptable),
    "request_timeout": _plain(errors.RequestTimeout),
    "payload_too_large": _plain(errors.PayloadTooLarge),
    "unsupported_media_type": _plain(errors.UnsupportedMediaType),
    "throttled": _throttled,
    "not_ready": _not_ready,
    "shutting_down": _plain(errors.Closed),
    "internal": _internal,
    "disk_full": _disk_full,
}
