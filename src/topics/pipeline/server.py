"""The server, as far as the pipeline talks to it: every HTTP call of the pipeline is here.

Keeps: no message shows a token; what may be repeated is repeated while the server is away or busy,
up to a deadline; what is refused becomes an error that names server, topic and reason.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import Struct

from topics.client import bulk_calls, calls, group_calls
from topics.client.failures import failure_of
from topics.client.replies import decoder
from topics.client.request import Call, Flow, Request, Response
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
from topics.model.frames import RangePage
from topics.model.segments import Manifest
from topics.model.uploads import BuiltSegment, UploadState
from topics.pipeline.options import Token

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


class _Written(Struct, frozen=True, kw_only=True):
    count: int
    deduped: bool = False


_read_info = decoder(TopicInfo)
_read_written = decoder(_Written)


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

    def list_topics(self, prefix: str) -> list[str]:
        return self._flow(calls.topics(prefix))

    def topic(self, name: str) -> TopicInfo:
        request = calls.state(name, touch=False).request
        return self._call(Call(request=request, decode=_read_info, repeatable=True, name=name))

    def wait_for_records(self, name: str, *, from_seq: int, wait_ms: int) -> None:
        """Return when there is a record behind `from_seq`, or after `wait_ms`."""
        self._call(
            calls.diff(name, from_seq=from_seq, limit=1, wait_ms=wait_ms, include_meta=False)
        )

    # Segments.

    def manifest(self, name: str, *, pin_ms: int | None = None) -> Manifest:
        return self._call(bulk_calls.manifest(name, pin_ms=pin_ms))

    def renew_pin(self, pin: str, *, pin_ms: int) -> None:
        self._call(bulk_calls.renew_pin(pin, pin_ms=pin_ms))

    def release_pin(self, pin: str) -> None:
        self._call(bulk_calls.release_pin(pin))

    def read_range(
        self, name: str, *, epoch: int, from_seq: int, to_seq: int, max_bytes: int
    ) -> RangePage:
        """Read (from_seq, to_seq] as frames; `TopicRecreated` if the topic has another epoch."""
        return self._call(
            bulk_calls.read_range(
                name, from_seq=from_seq, to_seq=to_seq, max_bytes=max_bytes, epoch=epoch
            )
        )

    # Writes.

    def append(self, name: str, body: bytes) -> int:
        """Write a body that may be repeated; return how many records are new."""
        path = f"{calls.topic_path(name)}?return_seqs=false"
        request = Request(method="POST", path=path, body=body)
        written = self._call(
            Call(request=request, decode=_read_written, repeatable=True, name=name)
        )
        return 0 if written.deduped else written.count

    def commit_group(self, group: str, offsets: dict[str, dict[int, int]]) -> None:
        self._call(group_calls.commit(group, offsets, member=None, generation=None))

    # Bulk work.

    def begin_upload(self, name: str, config: dict[str, Any]) -> UploadState:
        return self._call(bulk_calls.begin_upload(name, config))

    def attach(self, upload: UploadState, segments: Sequence[BuiltSegment]) -> None:
        """Make the topic; an answer that was lost is looked up: the topic tells."""
        try:
            self._call(bulk_calls.attach(upload.upload, segments, timeout_s=LONG_S))
        except UploadNotFound:
            if not self.has_topic(upload.topic, epoch=upload.topic_id):
                raise

    def has_topic(self, name: str, *, epoch: int | None = None) -> bool:
        """Tell whether a topic is there, in any life or in this one."""
        try:
            return self.topic(name).epoch == epoch or epoch is None
        except TopicNotFound:
            return False

    def abandon_upload(self, upload: str) -> None:
        call = bulk_calls.abandon_upload(upload)
        self._call(msgspec.structs.replace(call, wait_ms=int(LONG_S * 1000)))

    def compact(self, name: str, *, min_dead_ratio: float, max_segments: int) -> Compacted:
        return self._call(
            bulk_calls.compact(
                name, min_dead_ratio=min_dead_ratio, max_segments=max_segments, timeout_s=LONG_S
            )
        )

    # Inside.

    def _flow(self, flow: Flow[T]) -> T:
        answer: Any = None
        while True:
            try:
                call = flow.send(answer)
            except StopIteration as end:
                found: T = end.value
                return found
            answer = self._call(call)

    def _call(self, call: Call[T]) -> T:
        """Ask until the server answers; every call here may be repeated."""
        deadline_s = self._clock.monotonic_s() + self._patience_s
        while True:
            failure, pause_s, reply = self._try(call)
            if failure is None:
                return call.decode(reply)
            if self._clock.monotonic_s() + pause_s > deadline_s:
                raise ServerRefused(
                    f"{self.url} did not answer {call.request.method} {_path(call)} for "
                    f"{self._patience_s:.0f} s: {failure}"
                ) from failure
            self._clock.sleep(pause_s)

    def _try(self, call: Call[Any]) -> tuple[TopicsError | None, float, bytes]:
        """Ask once: an answer, or why there is none yet and how long to wait; refusals raise."""
        try:
            response = self._transport.send(call.request, ANSWER_S + call.wait_ms / 1000)
        except Unreachable as error:
            return error, PAUSE_S, b""
        failure = failure_of(response, name=call.name)
        if failure is not None and response.status not in _AWAY:
            raise self._refusal(call, response, failure)
        if failure is None:
            return None, 0.0, response.body
        return failure, plan_pause(failure, asked_s=response.retry_after_s, pause_s=PAUSE_S), b""

    def _refusal(self, call: Call[Any], response: Response, failure: TopicsError) -> TopicsError:
        if isinstance(failure, TopicNotFound | TopicRecreated | UploadNotFound):
            return failure
        return ServerRefused(
            f"{self.url} refused {_path(call)} with {response.status} {failure.code}: {failure}"
        )


def _path(call: Call[Any]) -> str:
    return call.request.path.partition("?")[0]
