"""What each route takes and gives, for those who read /openapi.json.

One entry a route, by its label; the models are those that decode the requests.
"""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

from topics.limits import (
    DEFAULT_RANGE_BYTES,
    GROUP_NAME_PATTERN,
    MAX_IDEMPOTENCY_KEY_CHARS,
    MAX_PIN_MS,
    NO_CEILING,
    ROUTER_NAME_PATTERN,
    TOPIC_NAME_PATTERN,
)
from topics.model.append import AppendBody, AppendReply
from topics.model.backups import BackupReply
from topics.model.compact import CompactBody, CompactReply
from topics.model.delete import DeleteBody, DeleteReply
from topics.model.diff import DiffBody, DiffReply
from topics.model.empty import EmptyBody
from topics.model.frames import MEDIA_TYPE as FRAMES
from topics.model.groups import (
    CommitReply,
    CommitRequest,
    GroupDeleteReply,
    GroupListReply,
    GroupReply,
    HeartbeatReply,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveReply,
    LeaveRequest,
    PollReply,
    PollRequest,
    SeekReply,
    SeekRequest,
)
from topics.model.health import HealthReply, ReadyReply
from topics.model.partitions import TopicPutBody
from topics.model.queues import (
    AckReply,
    AckRequest,
    ClaimReply,
    ClaimRequest,
    ExtendReply,
    ExtendRequest,
    NackReply,
    NackRequest,
    RedriveReply,
    RedriveRequest,
)
from topics.model.routers import (
    RouterDefinition,
    RouterDeleteReply,
    RouterListReply,
    RouterPutReply,
    RouterReply,
)
from topics.model.segments import ManifestReply, PinBody, PinDeleteReply, PinReply
from topics.model.tickets import TicketReply
from topics.model.topics import TopicDeleteReply, TopicListReply, TopicPutReply, TopicReply
from topics.model.uploads import (
    AttachBody,
    AttachReply,
    UploadDeleteReply,
    UploadReply,
    UploadSchema,
)
from topics.model.watch import WatchBody, WatchReply

Schema = Mapping[str, object]
JSON = "application/json"
TEXT = "text/plain"
HTML = "text/html"
EVENTS = "text/event-stream"


class Description(Struct, frozen=True, kw_only=True):
    """One route in words and models; what is not named is any JSON object."""

    summary: str
    takes: object = None
    gives: object = None
    statuses: tuple[int, ...] = (200,)
    media: tuple[str, ...] = (JSON,)
    query: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    refusals: tuple[int, ...] = ()
    """Besides those that every route of its kind has."""


# A cursor is opaque; the pattern is that of names of three, six, nine … ASCII characters.
_CURSOR = "^YWZ0ZXI6([A-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9_-])*$"
PARAMETERS: Mapping[str, Schema] = {
    "topic": {"type": "string", "pattern": TOPIC_NAME_PATTERN},
    "router": {"type": "string", "pattern": ROUTER_NAME_PATTERN},
    "backup": {"type": "string", "pattern": TOPIC_NAME_PATTERN},
    "group": {"type": "string", "pattern": GROUP_NAME_PATTERN},
    "wid": {"type": "string"},
    "prefix": {"type": "string"},
    "source": {"type": "string"},
    "dest": {"type": "string"},
    "page_size": {"type": "integer", "minimum": 1, "default": 100},
    "cursor": {"type": "string", "pattern": _CURSOR},
    "touch": {"type": "boolean", "default": True},
    "if_empty": {"type": "boolean", "default": False},
    "return_seqs": {"type": "boolean", "default": True},
    "lenient": {"type": "boolean", "default": False},
    "token": {"type": "string"},
    "ticket": {"type": "string"},
    "node": {"type": "string", "minLength": 1},
    "max": {"type": "integer", "minimum": 1, "default": 1},
    "lease_ms": {"type": "integer", "minimum": 1},
    "upload": {"type": "string", "minLength": 1},
    "pin": {"type": "string", "minLength": 1},
    "pin_ms": {"type": "integer", "minimum": 1, "maximum": MAX_PIN_MS},
    "from_seq": {"type": "integer", "minimum": 0, "maximum": NO_CEILING, "default": 0},
    "to_seq": {"type": "integer", "minimum": 0, "maximum": NO_CEILING, "default": 0},
    "max_bytes": {"type": "integer", "minimum": 1, "default": DEFAULT_RANGE_BYTES},
    "epoch": {"type": "integer", "minimum": 1, "maximum": NO_CEILING},
    "Idempotency-Key": {"type": "string", "maxLength": MAX_IDEMPOTENCY_KEY_CHARS},
    "Last-Event-ID": {"type": "string"},
}
_PAGES = ("prefix", "page_size", "cursor")
_APPEND = Annotated[
    AppendBody,
    Meta(
        extra_json_schema={
            "anyOf": [
                {
                    "properties": {
                        name: {"type": "null"} for name in ("producer_id", "producer_seq")
                    }
                },
                {
                    "required": ["producer_id", "producer_seq"],
                    "properties": {
                        "producer_id": {"type": "string", "pattern": "^[^$]"},
                        "producer_seq": {"type": "integer"},
                    },
                },
            ]
        }
    ),
]
_DELETE = Annotated[
    DeleteBody,
    Meta(
        extra_json_schema={
            "anyOf": [
                {"required": ["before_seq"], "properties": {"before_seq": {"type": "integer"}}},
                {"required": ["match"], "properties": {"match": {"type": ["string", "array"]}}},
            ]
        }
    ),
]

DESCRIPTIONS: Mapping[str, Description] = {
    "GET /v0/topics": Description(
        summary="List topics by name", gives=TopicListReply, query=(*_PAGES, "touch")
    ),
    "PUT /v0/topics/:topic": Description(
        summary="Create a topic, or change its config",
        takes=TopicPutBody,
        gives=TopicPutReply,
        statuses=(200, 201),
        refusals=(409,),
    ),
    "GET /v0/topics/:topic": Description(
        summary="Look at a topic", gives=TopicReply, query=("touch",)
    ),
    "DELETE /v0/topics/:topic": Description(
        summary="Delete a topic with all it holds",
        gives=TopicDeleteReply,
        query=("if_empty",),
        refusals=(409,),
    ),
    "POST /v0/topics/:topic": Description(
        summary="Append records",
        takes=_APPEND,
        gives=AppendReply,
        statuses=(200, 201),
        query=("return_seqs",),
        headers=("Idempotency-Key",),
        refusals=(409, 422),
    ),
    "POST /v0/topics/:topic/diff": Description(
        summary="Read what comes after a seq", takes=DiffBody, gives=DiffReply, refusals=(409,)
    ),
    "POST /v0/topics/:topic/delete": Description(
        summary="Delete records for good", takes=_DELETE, gives=DeleteReply, refusals=(409,)
    ),
    "POST /v0/topics/:topic/claim": Description(
        summary="Take jobs out of a queue",
        takes=ClaimRequest,
        gives=ClaimReply,
        refusals=(409,),
    ),
    "POST /v0/topics/:topic/ack": Description(
        summary="Say that jobs are done: they are deleted",
        takes=AckRequest,
        gives=AckReply,
        refusals=(409,),
    ),
    "POST /v0/topics/:topic/nack": Description(
        summary="Give jobs back", takes=NackRequest, gives=NackReply, refusals=(409,)
    ),
    "POST /v0/topics/:topic/extend": Description(
        summary="Ask for more time", takes=ExtendRequest, gives=ExtendReply, refusals=(409,)
    ),
    "POST /v0/topics/:topic/redrive": Description(
        summary="Bring dead letters back to their queues, each once",
        takes=RedriveRequest,
        gives=RedriveReply,
        refusals=(409, 422),
    ),
    "GET /v0/topics/:topic/work": Description(
        summary="Get jobs as they come, as events",
        media=(EVENTS,),
        query=("node", "max", "lease_ms", "token", "ticket"),
        refusals=(409,),
    ),
    "GET /v0/topics/:topic/segments": Description(
        summary="Name the files of a topic, and hold them",
        gives=ManifestReply,
        query=("pin_ms",),
        refusals=(409,),
    ),
    "GET /v0/topics/:topic/range": Description(
        summary="Read a range as raw frames",
        media=(FRAMES,),
        query=("from_seq", "to_seq", "max_bytes", "epoch"),
        refusals=(409,),
    ),
    "POST /v0/topics/:topic/compact": Description(
        summary="Rewrite cold segments with dead records",
        takes=CompactBody,
        gives=CompactReply,
        refusals=(409,),
    ),
    "POST /v0/pins/:pin": Description(
        summary="Hold files for longer", takes=PinBody, gives=PinReply
    ),
    "DELETE /v0/pins/:pin": Description(summary="Let files go", gives=PinDeleteReply),
    "POST /v0/uploads": Description(
        summary="Begin a topic out of segments that others build",
        takes=UploadSchema,
        gives=UploadReply,
        statuses=(201,),
        refusals=(409,),
    ),
    "POST /v0/uploads/:upload/attach": Description(
        summary="Let the topic begin, whole",
        takes=AttachBody,
        gives=AttachReply,
        statuses=(201,),
        refusals=(409,),
    ),
    "DELETE /v0/uploads/:upload": Description(summary="Give an upload up", gives=UploadDeleteReply),
    "GET /v0/routers": Description(
        summary="List routers by name", gives=RouterListReply, query=(*_PAGES, "source", "dest")
    ),
    "PUT /v0/routers/:router": Description(
        summary="Create a router, or change it",
        takes=RouterDefinition,
        gives=RouterPutReply,
        statuses=(200, 201),
        refusals=(409,),
    ),
    "GET /v0/routers/:router": Description(summary="Look at a router", gives=RouterReply),
    "DELETE /v0/routers/:router": Description(
        summary="Delete a router; the copies stay", gives=RouterDeleteReply
    ),
    "GET /v0/groups": Description(
        summary="List consumer groups by name", gives=GroupListReply, query=_PAGES
    ),
    "GET /v0/groups/:group": Description(
        summary="Look at a consumer group: members, progress, lag", gives=GroupReply
    ),
    "DELETE /v0/groups/:group": Description(
        summary="Delete a consumer group that has no members",
        gives=GroupDeleteReply,
        refusals=(409,),
    ),
    "POST /v0/groups/:group/join": Description(
        summary="Become a member, or say which topics one wants now",
        takes=JoinRequest,
        gives=JoinReply,
        refusals=(409,),
    ),
    "POST /v0/groups/:group/heartbeat": Description(
        summary="Say that a member lives, and what it has given up",
        takes=HeartbeatRequest,
        gives=HeartbeatReply,
        refusals=(409,),
    ),
    "POST /v0/groups/:group/leave": Description(
        summary="Leave a group", takes=LeaveRequest, gives=LeaveReply
    ),
    "POST /v0/groups/:group/commit": Description(
        summary="Note how far a group has come",
        takes=CommitRequest,
        gives=CommitReply,
        refusals=(409,),
    ),
    "POST /v0/groups/:group/poll": Description(
        summary="Read all partitions of a member",
        takes=PollRequest,
        gives=PollReply,
        refusals=(409,),
    ),
    "POST /v0/groups/:group/seek": Description(
        summary="Move the progress of a group that has no members",
        takes=SeekRequest,
        gives=SeekReply,
        refusals=(409,),
    ),
    "POST /v0/watch": Description(
        summary="Make a watch over topics",
        takes=WatchBody,
        gives=WatchReply,
        query=("lenient",),
        refusals=(404,),
    ),
    "GET /v0/watch/:wid": Description(
        summary="Stream a watch as events",
        media=(EVENTS,),
        query=("token", "ticket"),
        headers=("Last-Event-ID",),
    ),
    "GET /v0/ws": Description(
        summary="Open a WebSocket: subscribe, publish",
        statuses=(101,),
        media=(),
        query=("token", "ticket"),
    ),
    "POST /v0/tickets": Description(
        summary="Get a word that opens one stream, once",
        takes=EmptyBody,
        gives=TicketReply,
        statuses=(201,),
    ),
    "POST /v0/backups/:backup": Description(
        summary="Copy everything, as it is at one moment, into the folder of backups",
        takes=EmptyBody,
        gives=BackupReply,
        statuses=(201,),
        refusals=(404, 409),
    ),
    "GET /v0/metrics": Description(summary="Every number about the server", media=(TEXT, JSON)),
    "GET /v0/health": Description(summary="Is the process alive", gives=HealthReply),
    "GET /healthz": Description(summary="Is the process alive", gives=HealthReply),
    "GET /v0/ready": Description(summary="Is the log served", gives=ReadyReply),
    "GET /readyz": Description(summary="Is the log served", gives=ReadyReply),
    "GET /openapi.json": Description(summary="This document"),
    "GET /docs": Description(summary="This document as a page", media=(HTML,)),
}
