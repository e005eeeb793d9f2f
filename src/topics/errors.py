"""Every error this package raises on purpose, grouped by who has to act.

TopicsError
├── RequestError             the caller asked for something wrong: retrying cannot help
│   ├── UnknownField
│   ├── BatchTooLarge
│   ├── RecordTooLarge
│   ├── TopicNotFound
│   ├── TopicExistsIncompatible
│   │   ├── TopicPartitioned
│   │   └── TopicRecreated
│   ├── TopicNotEmpty
│   ├── TopicFull
│   ├── NotAQueue
│   ├── RouterNotFound
│   ├── RouterCycle
│   ├── BackupExists
│   ├── PayloadMismatch
│   ├── GroupNotFound
│   ├── GroupNotEmpty
│   ├── GenerationMismatch
│   ├── PinNotFound
│   ├── UploadNotFound
│   └── HttpRefused          the request itself, not what it asks of a topic
│       ├── Unauthorized
│       ├── Forbidden
│       ├── RouteNotFound
│       ├── MethodNotAllowed
│       ├── NotAcceptable
│       ├── RequestTimeout
│       ├── PayloadTooLarge
│       └── UnsupportedMediaType
├── RetryLater               nothing is wrong: the server is full or not ready yet
│   ├── Throttled
│   ├── LimitReached
│   │   └── TooManyConnections
│   ├── NotReady
│   ├── Unreachable
│   └── Closed
├── ConfigError              the operator wrote a setting that cannot be used
│   └── OptionError          one of a Spark query
├── PipelineError            a Spark query cannot go on: its author has to decide
│   ├── DataLoss
│   ├── BadRow
│   ├── LakeConflict
│   └── ServerRefused
├── PartlyWritten            some partitions have their part of a write: repeat it for the rest
└── StorageError             the operator has to look: never caught inside the engine
    ├── DiskFailed
    │   ├── Exhausted        there is no more of what the call needs: it may succeed later
    │   │   ├── DiskFull
    │   │   └── TooManyFiles
    │   └── FileMissing
    ├── ShardReadOnly
    ├── DirectoryLocked
    ├── UnknownFormat
    └── CorruptData

A broken promise between two of our own functions is an `assert`, not an error class.
HTTP status codes live in `topics.api.error_response`, not here.
"""

from collections.abc import Sequence
from typing import ClassVar


class TopicsError(Exception):
    """Root of the tree above."""

    code: ClassVar[str] = "internal"


class RequestError(TopicsError):
    """The caller asked for something wrong."""

    code = "invalid_request"


class UnknownField(RequestError):
    """A field, parameter or option has a name that nobody knows: `topics.nearest` builds it."""

    def __init__(self, message: str, field: str = "", nearest: str | None = None) -> None:
        super().__init__(message)
        self.args = (message, field, nearest)  # they rebuild the error when it is unpickled
        self.field = field
        self.nearest = nearest

    def __str__(self) -> str:
        return str(self.args[0])

    @property
    def detail(self) -> dict[str, object]:
        field = self.field.encode(errors="replace").decode()  # it may be half a surrogate pair
        return {"field": field, **({} if self.nearest is None else {"nearest": self.nearest})}


class BatchTooLarge(RequestError):
    """More records in one write than the limit."""

    code = "batch_too_large"


class RecordTooLarge(RequestError):
    """One record, or a batch for a capped topic, can never fit."""

    code = "record_too_large"


class TopicNotFound(RequestError):
    """No topic has this name."""

    code = "topic_not_found"

    def __init__(self, topic: str) -> None:
        super().__init__(topic)  # `args` rebuilds the error when it is unpickled
        self.topic = topic

    def __str__(self) -> str:
        return f"topic {self.topic!r} does not exist"


class TopicExistsIncompatible(RequestError):
    """The topic is there, but not of the kind that was asked for.

    `reason` names the kind of conflict where a caller may want to tell: it becomes `detail.reason`.
    """

    code = "topic_exists_incompatible"

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class BackupExists(RequestError):
    """A backup was to go where something is already."""

    code = "backup_exists"


class TopicPartitioned(TopicExistsIncompatible):
    """The topic has partitions: it has no seqs of its own, they have."""

    def __init__(self, topic: str, partitions: list[str]) -> None:
        super().__init__(topic)
        self.args = (topic, partitions)  # they rebuild the error when it is unpickled
        self.topic = topic
        self.partitions = partitions

    def __str__(self) -> str:
        return (
            f"topic {self.topic!r} has {len(self.partitions)} partitions: read them one by one, "
            "or all of them with a group"
        )

    @property
    def detail(self) -> dict[str, object]:
        return {"topic": self.topic, "partitions": self.partitions}


class TopicRecreated(TopicExistsIncompatible):
    """The name now stands for another topic than the one the caller means."""

    def __init__(self, topic: str, epoch: int) -> None:
        super().__init__(topic)
        self.args = (topic, epoch)  # they rebuild the error when it is unpickled
        self.topic = topic
        self.epoch = epoch

    def __str__(self) -> str:
        return f"topic {self.topic!r} is another one now, of epoch {self.epoch}"

    @property
    def detail(self) -> dict[str, object]:
        return {"epoch": self.epoch, "reason": "recreated"}


class TopicNotEmpty(RequestError):
    """The topic was to be deleted only if empty."""

    code = "topic_not_empty"

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return f"topic {self.topic!r} still holds records"


class TopicFull(RequestError):
    """A topic with `discard: reject` has no room for this write."""

    code = "topic_full"

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return f"topic {self.topic!r} is full and rejects writes: delete records or raise its cap"


class HttpRefused(RequestError):
    """The request itself, not what it asks of a topic, is refused."""


class Unauthorized(HttpRefused):
    """No key, or one that nobody has."""

    code = "unauthorized"


class Forbidden(HttpRefused):
    """The key may not do this, or not to this name."""

    code = "forbidden"


class RouteNotFound(HttpRefused):
    """There is no such route, watch session or ticket."""

    code = "not_found"


class MethodNotAllowed(HttpRefused):
    """The route is there, but not for this method."""

    code = "method_not_allowed"

    def __init__(self, method: str, allowed: tuple[str, ...]) -> None:
        super().__init__(method, allowed)
        self.method = method
        self.allowed = allowed

    def __str__(self) -> str:
        return f"{self.method} is not allowed here: use {' or '.join(self.allowed)}"


class NotAcceptable(HttpRefused):
    """A stream was asked for by someone who does not accept one."""

    code = "not_acceptable"


class RequestTimeout(HttpRefused):
    """The request did not arrive in time."""

    code = "request_timeout"


class PayloadTooLarge(HttpRefused):
    """The body is larger than the limit."""

    code = "payload_too_large"


class UnsupportedMediaType(HttpRefused):
    """The body is not JSON, or encoded in a way we do not know."""

    code = "unsupported_media_type"


class NotAQueue(RequestError):
    """Jobs were asked of a topic that is a plain log."""

    code = "not_a_queue"

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return f"topic {self.topic!r} is a log: only a topic of type 'queue' has jobs"


class RouterNotFound(RequestError):
    """No router has this name."""

    code = "router_not_found"

    def __init__(self, router: str) -> None:
        super().__init__(router)
        self.router = router

    def __str__(self) -> str:
        return f"router {self.router!r} does not exist"


class RouterCycle(RequestError):
    """The router would send records round in a circle, and does not say that it may.

    `cycle` names the topics on the way, the first one again at the end.
    """

    code = "router_cycle"

    def __init__(self, cycle: list[str]) -> None:
        super().__init__(cycle)
        self.cycle = cycle

    def __str__(self) -> str:
        return (
            f"the router closes the circle {' -> '.join(self.cycle)}: set allow_cycle to allow it"
        )


class PayloadMismatch(RequestError):
    """A record does not fit the type that its reader named; `seq` is where to go on from."""

    def __init__(self, topic: str, seq: int, reason: str) -> None:
        super().__init__(topic, seq, reason)
        self.topic = topic
        self.seq = seq
        self.reason = reason

    def __str__(self) -> str:
        return f"record {self.seq} of topic {self.topic!r} does not fit its type: {self.reason}"


class GroupNotFound(RequestError):
    """No consumer group has this name."""

    code = "group_not_found"

    def __init__(self, group: str) -> None:
        super().__init__(group)
        self.group = group

    def __str__(self) -> str:
        return f"group {self.group!r} does not exist"


class GroupNotEmpty(RequestError):
    """What was asked is allowed only while a group has no members."""

    code = "group_not_empty"

    def __init__(self, group: str) -> None:
        super().__init__(group)
        self.group = group

    def __str__(self) -> str:
        return f"group {self.group!r} has members: they must leave first"


class GenerationMismatch(RequestError):
    """Whoever asked does not know who owns what in the group now, or is no member of it.

    `generation` is the group's now: a heartbeat, or for an unknown member a join, brings it.
    """

    code = "generation_mismatch"

    def __init__(self, message: str, generation: int) -> None:
        super().__init__(message, generation)
        self.message = message
        self.generation = generation

    def __str__(self) -> str:
        return self.message

    @property
    def detail(self) -> dict[str, object]:
        return {"generation": self.generation}


class PinNotFound(RequestError):
    """No pin has this id: it ran out, was released, or belongs to another key."""

    code = "not_found"

    def __str__(self) -> str:
        return "there is no such pin: it ran out, was released, or is not yours"


class UploadNotFound(RequestError):
    """No upload has this id: it became a topic, was abandoned, or belongs to another key."""

    code = "not_found"

    def __str__(self) -> str:
        return "there is no such upload: it became a topic, was abandoned, or is not yours"


class RetryLater(TopicsError):
    """Nothing is wrong, but not now."""

    code = "not_ready"


class Throttled(RetryLater):
    """Writes arrive faster than the disk takes them."""

    code = "throttled"

    def __init__(self, retry_after_ms: int) -> None:
        super().__init__(retry_after_ms)
        self.retry_after_ms = retry_after_ms

    def __str__(self) -> str:
        return f"the write queue is full: try again in {self.retry_after_ms} ms"


class LimitReached(RetryLater):
    """A resource cap of the server is used up."""

    code = "throttled"

    def __init__(self, limit: str, maximum: int, advice: str = "remove something") -> None:
        super().__init__(limit, maximum)
        self.limit = limit
        self.maximum = maximum
        self._advice = advice

    def __str__(self) -> str:
        return f"{self.limit} is {self.maximum} and used up: {self._advice} or raise it"


class TooManyConnections(LimitReached):
    """Every place for a connection is taken, and nobody at rest could be ended for it."""

    code = "not_ready"

    def __str__(self) -> str:
        return f"all {self.maximum} connections are in use: try again soon, or raise {self.limit}"


class NotReady(RetryLater):
    """The server still replays its log."""

    def __init__(self, progress: float) -> None:
        super().__init__(progress)
        self.progress = progress

    def __str__(self) -> str:
        return f"the log is being replayed, {self.progress:.0%} done: try again soon"


class Unreachable(RetryLater):
    """No answer came from the server; `sent` tells that it may have done what was asked."""

    def __init__(self, message: str, *, sent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent


class Closed(RetryLater):
    """The log is closed or closing."""

    code = "shutting_down"


class PartlyWritten(TopicsError):
    """Some partitions took their part of a write, and others did not, because of `cause`.

    With the same idempotency key a repeat writes the rest and nothing twice. `placed` has partition
    and seq of each record, in the order of the request; 0 for one that was not written.
    """

    def __init__(
        self,
        cause: TopicsError,
        placements: list[dict[str, object]],
        failed: list[int],
        placed: Sequence[tuple[int, int]] = (),
    ) -> None:
        super().__init__(cause, placements, failed, placed)
        self.cause = cause
        self.placements = placements
        self.failed = failed
        self.placed = placed

    def __str__(self) -> str:
        names = ", ".join(map(str, self.failed))
        return f"{self.cause}; partitions {names} did not get their part of the write"


class ConfigError(TopicsError):
    """A setting that cannot be used."""


class OptionError(ConfigError):
    """An option of a Spark query that cannot be used."""


class PipelineError(TopicsError):
    """A Spark query cannot go on as it is.

    A worker's error reaches the driver as text alone: the message says everything.
    """


class DataLoss(PipelineError):
    """Records that a query asked for are gone, and it was not told to go on without them."""


class BadRow(PipelineError):
    """A row that cannot become a record."""


class LakeConflict(PipelineError):
    """Two runs, or a run and a checkpoint that is not its own, would spoil a lake."""


class ServerRefused(PipelineError):
    """The server did not do what a query needs."""


class StorageError(TopicsError):
    """The bytes on disk, or the disk, cannot be trusted."""


class DiskFailed(StorageError):
    """The operating system refused a disk call."""


class Exhausted(DiskFailed):
    """The device or the process has no more of what the call needs; it may succeed later."""


class DiskFull(Exhausted):
    """There is no room left on the device.

    Where it is known: so much is free, writes go on when so much is, and who may see them is told
    which topics are the largest.
    """

    code = "disk_full"

    def __init__(
        self,
        message: str,
        *,
        free_bytes: int | None = None,
        needed_bytes: int | None = None,
        largest: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.free_bytes = free_bytes
        self.needed_bytes = needed_bytes
        self.largest = largest

    @property
    def detail(self) -> dict[str, object]:
        detail: dict[str, object] = {"reason": "disk_full"}
        if self.free_bytes is not None:
            detail["free_bytes"] = self.free_bytes
        if self.needed_bytes is not None:
            detail["needed_bytes"] = self.needed_bytes
        if self.largest:
            detail["largest_topics"] = list(self.largest)
        return detail


class TooManyFiles(Exhausted):
    """A file could not be opened: the process or the system has no descriptor left.

    Nothing was done to it, so nothing is unknown of it: the same may be tried again.
    """

    code = "not_ready"

    @property
    def detail(self) -> dict[str, object]:
        return {"reason": "too_many_files"}


class FileMissing(DiskFailed):
    """A file that should be there is not."""


class ShardReadOnly(StorageError):
    """A write or sync of this WAL shard failed; it takes no more writes until a restart."""

    code = "not_ready"

    @property
    def detail(self) -> dict[str, object]:
        return {"reason": "read_only"}


class DirectoryLocked(StorageError):
    """Another process has this data directory open."""


class UnknownFormat(StorageError):
    """The data directory was written by another version."""


class CorruptData(StorageError):
    """Bytes that were once synced do not match their checksum any more, or are gone.

    `segment` names the file where it is known: the response shows it as `detail.segment`.
    """

    def __init__(self, message: str, *, segment: str | None = None) -> None:
        super().__init__(message)
        self.segment = segment
