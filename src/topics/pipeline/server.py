"""The server, as far as the pipeline talks to it: every HTTP call of the pipeline is here.

Keeps: no message shows a token; what may be repeated is repeated while the server is away or busy,
up to a deadline; what is refused becomes an error that names server, topic and reason.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote, unquote, urlencode

import msgspec
from msgspec import UNSET, Struct, UnsetType

from topics.client.failures import failure_of
from topics.client.request import Request, Response
from topics.client.retry import plan_pause
from topics.client.settings import ClientSettings
from topics.client.sync_transport import SyncTransport
from topics.clock import Clock, SystemClock
from topics.errors import (
    ServerRefused,
    TopicNotFound,
    TopicRecreated,
    TopicsError,
    Unreachable,
    UploadNotFound,
)
from topics.model.compact import Compacted
from topics.model.frames import MEDIA_TYPE
from topics.model.segments import Manifest
from topics.model.uploads import BuiltSegment, UploadState
from topics.pipeline.options import Token

PAGE_SIZE: Final = 1_000
PATIENCE_S: Final = 60.0
PAUSE_S: Final = 0.2
ANSWER_S: Final = 60.0
LONG_S: Final = 3600.0
"""How long an answer may take that comes when all bytes of a topic were read."""
_AWAY: Final = frozenset({429, 502, 503, 504})
T = TypeVar("T")


class PartitionInfo(Struct, frozen=True, kw_only=True):
    """One partition of a topic."""

    partition: int
    topic: str


class TopicInfo(Struct, frozen=True, kw_only=True):
    """What the state of a topic says, as far as it is used here."""

    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    epoch: int = 0
    partitions: list[PartitionInfo] | None = None


class _Listed(Struct, frozen=True):
    topic: str


class _Page(Struct, frozen=True, kw_only=True):
    topics: list[_Listed]
    next_cursor: str | UnsetType = UNSET


class _Written(Struct, frozen=True, kw_only=True):
    count: int
    deduped: bool = False


class Transport(Protocol):
    """What carries a request to the server and its answer back."""

    def send(self, request: Request, timeout_s: float) -> Response: ...

    def close(self) -> None: ...


class Server:
    """A connection to one server, opened when first used."""

    def __init__(
        self,
        url: str,
        token: Token | None = None,
        *,
        clock: Clock | None = None,
        transport: Transport | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.url = url
        self._clock = clock or SystemClock()
        self._patience_s = patience_s
        settings = ClientSettings(
            url,
            token=token or "",  # an executor's environment has no say in who asks
            timeout_s=ANSWER_S,
            retry_for_s=patience_s,
            ssl_context=None,
        )
        self._transport: Transport = transport or SyncTransport(settings, self._clock)

    def close(self) -> None:
        self._transport.close()

    # Topics.

    def list_topics(self, prefix: str) -> Iterator[str]:
        cursor: str | UnsetType = ""
        while cursor is not UNSET:
            query = {"prefix": prefix, "page_size": str(PAGE_SIZE), "touch": "false"}
            if cursor:
                query["cursor"] = cursor
            page = self._get("/v0/topics", query, _Page)
            yield from (listed.topic for listed in page.topics)
            cursor = page.next_cursor

    def topic(self, name: str) -> TopicInfo:
        return self._get(_topic_path(name), {"touch": "false"}, TopicInfo)

    def wait_for_records(self, name: str, *, from_seq: int, wait_ms: int) -> None:
        """Return when there is a record behind `from_seq`, or after `wait_ms`."""
        body = {"from_seq": from_seq, "limit": 1, "wait_ms": wait_ms, "include_meta": False}
        self._call("POST", _topic_path(name, "/diff"), body=body)

    # Segments.

    def manifest(self, name: str, *, pin_ms: int | None = None) -> Manifest:
        query = {} if pin_ms is None else {"pin_ms": str(pin_ms)}
        return self._get(_topic_path(name, "/segments"), query, Manifest)

    def renew_pin(self, pin: str, *, pin_ms: int) -> None:
        self._call("POST", f"/v0/pins/{pin}", body={"pin_ms": pin_ms})

    def release_pin(self, pin: str) -> None:
        self._call("DELETE", f"/v0/pins/{pin}")

    def read_range(
        self, name: str, *, epoch: int, from_seq: int, to_seq: int, max_bytes: int
    ) -> bytes:
        """Read (from_seq, to_seq] as frames; `TopicRecreated` if the topic has another epoch."""
        query = {
            "from_seq": str(from_seq),
            "to_seq": str(to_seq),
            "max_bytes": str(max_bytes),
            "epoch": str(epoch),
        }
        return self._call("GET", _topic_path(name, "/range"), query, accept=MEDIA_TYPE)

    # Writes.

    def append(self, name: str, body: bytes) -> int:
        """Write a body that may be repeated; return how many records are new."""
        reply = self._call("POST", _topic_path(name), {"return_seqs": "false"}, body=body)
        written = msgspec.json.decode(reply, type=_Written)
        return 0 if written.deduped else written.count

    def commit_group(self, group: str, offsets: dict[str, dict[str, int]]) -> None:
        self._call("POST", f"/v0/groups/{_quoted(group)}/commit", body={"offsets": offsets})

    # Bulk work.

    def begin_upload(self, name: str, config: dict[str, Any]) -> UploadState:
        reply = self._call("POST", "/v0/uploads", body={"topic": name, "config": config})
        return msgspec.json.decode(reply, type=UploadState)

    def attach(self, upload: UploadState, segments: Sequence[BuiltSegment]) -> None:
        """Make the topic; an answer that was lost is looked up: the topic tells."""
        try:
            self._call(
                "POST",
                f"/v0/uploads/{upload.upload}/attach",
                body={"segments": segments},
                timeout_s=LONG_S,
            )
        except UploadNotFound:
            if not self.has_life(upload.topic, upload.topic_id):
                raise

    def has_life(self, name: str, epoch: int) -> bool:
        """Tell whether a topic is there in this life."""
        try:
            return self.topic(name).epoch == epoch
        except TopicNotFound:
            return False

    def abandon_upload(self, upload: str) -> None:
        self._call("DELETE", f"/v0/uploads/{upload}", timeout_s=LONG_S)

    def compact(self, name: str, *, min_dead_ratio: float, max_segments: int) -> Compacted:
        reply = self._call(
            "POST",
            _topic_path(name, "/compact"),
            body={"min_dead_ratio": min_dead_ratio, "max_segments": max_segments},
            timeout_s=LONG_S,
        )
        return msgspec.json.decode(reply, type=Compacted)

    # Inside.

    def _get(self, path: str, query: dict[str, str], kind: type[T]) -> T:
        return msgspec.json.decode(self._call("GET", path, query), type=kind)

    def _call(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        *,
        body: object = None,
        accept: str = "application/json",
        timeout_s: float = ANSWER_S,
    ) -> bytes:
        """Ask until the server answers; every call here may be repeated."""
        request = Request(
            method=method,
            path=f"{path}?{urlencode(query)}" if query else path,
            body=body if isinstance(body, bytes | None) else msgspec.json.encode(body),
            accept=accept,
        )
        deadline_s = self._clock.monotonic_s() + self._patience_s
        while True:
            failure, pause_s, reply = self._try(request, path, timeout_s)
            if failure is None:
                return reply
            if self._clock.monotonic_s() + pause_s > deadline_s:
                raise ServerRefused(
                    f"{self.url} did not answer {method} {path} for {self._patience_s:.0f} s: "
                    f"{failure}"
                ) from failure
            self._clock.sleep(pause_s)

    def _try(
        self, request: Request, path: str, timeout_s: float
    ) -> tuple[TopicsError | None, float, bytes]:
        """Ask once: an answer, or why there is none yet and how long to wait; refusals raise."""
        try:
            response = self._transport.send(request, timeout_s)
        except Unreachable as error:
            return error, PAUSE_S, b""
        failure = failure_of(response, name=_named(path))
        if failure is not None and response.status not in _AWAY:
            raise self._refusal(path, response, failure)
        if failure is None:
            return None, 0.0, response.body
        return failure, plan_pause(failure, asked_s=response.retry_after_s, pause_s=PAUSE_S), b""

    def _refusal(self, path: str, response: Response, failure: TopicsError) -> TopicsError:
        if isinstance(failure, TopicNotFound | TopicRecreated | UploadNotFound):
            return failure
        return ServerRefused(
            f"{self.url} refused {path} with {response.status} {failure.code}: {failure}"
        )


def _topic_path(name: str, word: str = "") -> str:
    return f"/v0/topics/{_quoted(name)}{word}"


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _named(path: str) -> str:
    """Return what a path names: `a` in `/v0/topics/a/range`."""
    return unquote([*path.split("/"), ""][3])
