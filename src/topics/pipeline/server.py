"""The server, as far as the pipeline talks to it: every HTTP call of the pipeline is here.

Keeps: no message shows a token; what may be repeated is repeated while the server is away or busy,
up to a deadline; what is refused becomes an error that names server, topic and reason.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

import httpx
import msgspec
from msgspec import UNSET, Struct, UnsetType

from topics.clock import Clock, SystemClock
from topics.errors import ServerRefused, TopicNotFound, TopicRecreated, UploadNotFound
from topics.model.compact import Compacted
from topics.model.segments import Manifest
from topics.model.uploads import BuiltSegment, UploadState
from topics.pipeline.options import Token

PAGE_SIZE: Final = 1_000
PATIENCE_S: Final = 60.0
PAUSE_S: Final = 0.2
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


class Server:
    """A connection to one server, opened when first used."""

    def __init__(
        self,
        url: str,
        token: Token | None = None,
        *,
        clock: Clock | None = None,
        transport: httpx.BaseTransport | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.url = url
        self._clock = clock or SystemClock()
        self._patience_s = patience_s
        headers = {} if token is None else {"Authorization": f"Bearer {str.__str__(token)}"}
        self._http = httpx.Client(
            base_url=url,
            headers=headers,
            timeout=httpx.Timeout(30.0, read=60.0),
            transport=transport,
            trust_env=False,
        )

    def close(self) -> None:
        self._http.close()

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
        return self._get(f"/v0/topics/{name}", {"touch": "false"}, TopicInfo)

    def wait_for_records(self, name: str, *, from_seq: int, wait_ms: int) -> None:
        """Return when there is a record behind `from_seq`, or after `wait_ms`."""
        body = {"from_seq": from_seq, "limit": 1, "wait_ms": wait_ms, "include_meta": False}
        self._call("POST", f"/v0/topics/{name}/diff", json=body)

    # Segments.

    def manifest(self, name: str, *, pin_ms: int | None = None) -> Manifest:
        query = {} if pin_ms is None else {"pin_ms": str(pin_ms)}
        return self._get(f"/v0/topics/{name}/segments", query, Manifest)

    def renew_pin(self, pin: str, *, pin_ms: int) -> None:
        self._call("POST", f"/v0/pins/{pin}", json={"pin_ms": pin_ms})

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
        return self._call("GET", f"/v0/topics/{name}/range", params=query).content

    # Writes.

    def append(self, name: str, body: bytes) -> int:
        """Write a body that may be repeated; return how many records are new."""
        reply = self._call(
            "POST",
            f"/v0/topics/{name}",
            params={"return_seqs": "false"},
            content=body,
            headers={"Content-Type": "application/json"},
        )
        written = msgspec.json.decode(reply.content, type=_Written)
        return 0 if written.deduped else written.count

    def commit_group(self, group: str, offsets: dict[str, dict[str, int]]) -> None:
        self._call("POST", f"/v0/groups/{group}/commit", json={"offsets": offsets})

    # Bulk work.

    def begin_upload(self, name: str, config: dict[str, Any]) -> UploadState:
        reply = self._call("POST", "/v0/uploads", json={"topic": name, "config": config})
        return msgspec.json.decode(reply.content, type=UploadState)

    def attach(self, upload: UploadState, segments: Sequence[BuiltSegment]) -> None:
        """Make the topic; an answer that was lost is looked up: the topic tells."""
        try:
            self._call(
                "POST",
                f"/v0/uploads/{upload.upload}/attach",
                content=msgspec.json.encode({"segments": segments}),
                headers={"Content-Type": "application/json"},
                timeout=LONG_S,
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
        self._call("DELETE", f"/v0/uploads/{upload}", timeout=LONG_S)

    def compact(self, name: str, *, min_dead_ratio: float, max_segments: int) -> Compacted:
        reply = self._call(
            "POST",
            f"/v0/topics/{name}/compact",
            json={"min_dead_ratio": min_dead_ratio, "max_segments": max_segments},
            timeout=LONG_S,
        )
        return msgspec.json.decode(reply.content, type=Compacted)

    # Inside.

    def _get(self, path: str, query: dict[str, str], kind: type[T]) -> T:
        return msgspec.json.decode(self._call("GET", path, params=query).content, type=kind)

    def _call(self, method: str, path: str, **request: Any) -> httpx.Response:  # noqa: ANN401 - handed to httpx
        """Ask until the server answers; every call here may be repeated."""
        deadline = self._clock.monotonic_s() + self._patience_s
        while True:
            reason, pause_s = "", PAUSE_S
            try:
                reply = self._http.request(method, path, **request)
            except httpx.TransportError as error:
                reason = f"{type(error).__name__}: {error}"
            else:
                if reply.status_code < 400:
                    return reply
                if reply.status_code not in _AWAY:
                    raise self._refusal(path, reply)
                reason = f"status {reply.status_code}"
                pause_s = _retry_after_s(reply)
            if self._clock.monotonic_s() + pause_s > deadline:
                raise ServerRefused(
                    f"{self.url} did not answer {method} {path} for {self._patience_s:.0f} s: "
                    f"{reason}"
                )
            self._clock.sleep(pause_s)

    def _refusal(self, path: str, reply: httpx.Response) -> Exception:
        try:
            error = msgspec.json.decode(reply.content)["error"]
            code, message, detail = error["code"], error["message"], error.get("detail") or {}
        except (msgspec.DecodeError, KeyError, TypeError):
            code, message, detail = "unknown", reply.text[:200], {}
        if code == "topic_not_found":
            return TopicNotFound(path.split("/")[3])
        if code == "not_found" and path.startswith("/v0/uploads/"):
            return UploadNotFound()
        if detail.get("reason") == "recreated":
            return TopicRecreated(path.split("/")[3], int(detail.get("epoch", 0)))
        return ServerRefused(
            f"{self.url} refused {path} with {reply.status_code} {code}: {message}"
        )


def _retry_after_s(reply: httpx.Response) -> float:
    given = reply.headers.get("Retry-After", "")
    return min(float(given), 5.0) if given.replace(".", "", 1).isdecimal() else PAUSE_S
