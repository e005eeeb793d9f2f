"""How big a thing may be: the limits of the wire contract, and what a name may look like.

`Limits` holds the limits an operator may move; the constants below it are fixed. The settings page
is docs/reference/configuration.md.
"""

import re
from typing import Annotated, Final

from msgspec import Meta, Struct

from topics.errors import RequestError

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
NO_CEILING: Final = 2**63 - 1

MAX_META_KEYS: Final = 64
MAX_IDEMPOTENCY_KEY_CHARS: Final = 256
DEFAULT_LIMIT: Final = 256  # records of one read that names no limit
MAX_WAIT_MS: Final = 30_000
DEFAULT_BATCH_BYTES: Final = 1 * MIB  # byte budget of one read
MAX_BATCH_BYTES: Final = 8 * MIB
MAX_NAME_CHARS: Final = 255
MAX_PARTITIONS: Final = 1024
MAX_KEY_BYTES: Final = 256
MIN_SESSION_MS: Final = 1_000  # of a member of a consumer group
MAX_SESSION_MS: Final = 300_000
MAX_GROUP_TOPICS: Final = 256  # topics that one member subscribes to
MAX_GROUP_PARTITIONS: Final = 10_000  # of all topics that a join brings into a group
MAX_KEYLESS_BODY_BYTES: Final = 4 * KIB  # where whoever asks need not show a key
MAX_CONTROL_BODY_BYTES: Final = 64 * KIB  # where no records come
MAX_LIST_BODY_BYTES: Final = 512 * KIB  # where they name seqs, topics or partitions
LISTED_BYTES: Final = 512  # of one topic, where more of them are allowed than by default
MAX_SEGMENTS_BODY_BYTES: Final = 16 * MIB  # where they name segments: 100,000 and more
MAX_PIN_MS: Final = 600_000
MAX_PINS: Final = 1_000  # of all keys together
MAX_UPLOADS: Final = 100
UPLOAD_MS: Final = 24 * 3_600_000  # then it is taken for abandoned
DEFAULT_RANGE_BYTES: Final = 8 * MIB  # of one binary read
MAX_RANGE_BYTES: Final = 64 * MIB

TOPIC_NAME_PATTERN: Final = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$"
ROUTER_NAME_PATTERN: Final = "^[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}$"
GROUP_NAME_PATTERN: Final = TOPIC_NAME_PATTERN
_TOPIC_NAME = re.compile(TOPIC_NAME_PATTERN[1:-1])
_ROUTER_NAME = re.compile(ROUTER_NAME_PATTERN[1:-1])


def _count(text: str, *, low: int = 1, high: int) -> Meta:
    return Meta(ge=low, le=high, description=text)


def _size(text: str, *, low: int = 1, high: int) -> Meta:
    return Meta(ge=low, le=high, description=text, extra={"unit": "bytes"})


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of one process: the first group bounds a request, the second what may exist.

    In the second group 0 means unlimited, and only new things count against a limit.
    """

    max_batch_records: Annotated[int, _count("records in one write", high=1_000_000)] = 10_000
    max_record_bytes: Annotated[int, _size("data and meta of one record", high=GIB)] = MIB
    max_body_bytes: Annotated[int, _size("one request body", high=2 * GIB)] = 64 * MIB
    max_meta_bytes: Annotated[int, _size("meta of one record", high=GIB)] = 16 * KIB
    max_tag_bytes: Annotated[int, _size("tag of one record, as UTF-8", high=65_535)] = 256
    max_node_bytes: Annotated[int, _size("node of one record, as UTF-8", high=65_535)] = 128
    max_limit: Annotated[int, _count("records in one reply", high=1_000_000)] = 1_000
    max_claim: Annotated[int, _count("jobs in one claim", high=1_000_000)] = 1_000
    max_watch_topics: Annotated[int, _count("topics in one watch", high=100_000)] = 256

    max_topics: Annotated[int, _count("topics; 0: unlimited", low=0, high=NO_CEILING)] = 100_000
    max_routers: Annotated[int, _count("routers; 0: unlimited", low=0, high=NO_CEILING)] = 10_000
    max_groups: Annotated[int, _count("consumer groups; 0: unlimited", low=0, high=NO_CEILING)] = (
        10_000
    )
    max_group_members: Annotated[
        int, _count("members of one consumer group; 0: unlimited", low=0, high=NO_CEILING)
    ] = 256
    max_producers: Annotated[
        int,
        _count("producers that one topic remembers; 0: unlimited", low=0, high=NO_CEILING),
    ] = 100_000
    max_idempotency_keys: Annotated[
        int,
        _count("idempotency keys that one topic remembers; 0: unlimited", low=0, high=NO_CEILING),
    ] = 1_000_000
    max_watch_sessions: Annotated[
        int, _count("watch sessions; 0: unlimited", low=0, high=NO_CEILING)
    ] = 10_000
    max_watch_sessions_per_key: Annotated[
        int, _count("watch sessions of one API key; 0: unlimited", low=0, high=NO_CEILING)
    ] = 2_500
    max_watch_bytes: Annotated[
        int, _size("memory that all watches take, roughly; 0: unlimited", low=0, high=NO_CEILING)
    ] = 128 * MIB
    max_watch_bytes_per_key: Annotated[
        int, _size("memory that watches of one API key take; 0: unlimited", low=0, high=NO_CEILING)
    ] = 32 * MIB
    max_sse_connections: Annotated[
        int, _count("open event streams; 0: unlimited", low=0, high=NO_CEILING)
    ] = 10_000
    max_sse_connections_per_key: Annotated[
        int, _count("open event streams of one API key; 0: unlimited", low=0, high=NO_CEILING)
    ] = 1_000
    max_inflight_per_key: Annotated[
        int, _count("requests of one API key at a time; 0: unlimited", low=0, high=NO_CEILING)
    ] = 1_000
    max_total_bytes: Annotated[
        int, _size("live bytes of all topics; 0: unlimited", low=0, high=NO_CEILING)
    ] = 0


def check_topic_name(name: object) -> str:
    """Give the name back if a topic may be called so."""
    if not isinstance(name, str) or _TOPIC_NAME.fullmatch(name) is None:
        raise RequestError(_name_message("topic", name, extra=""))
    return name


def check_router_name(name: object) -> str:
    """Give the name back if a router may be called so: like a topic, and `>` is allowed."""
    if not isinstance(name, str) or _ROUTER_NAME.fullmatch(name) is None:
        raise RequestError(_name_message("router", name, extra=" >"))
    return name


def check_group_name(name: object) -> str:
    """Give the name back if a consumer group may be called so: like a topic."""
    if not isinstance(name, str) or _TOPIC_NAME.fullmatch(name) is None:
        raise RequestError(_name_message("group", name, extra=""))
    return name


def _name_message(kind: str, name: object, *, extra: str) -> str:
    shown = repr(name) if len(repr(name)) <= 80 else repr(name)[:77] + "..."
    return (
        f"{shown} is not a {kind} name: 1 to {MAX_NAME_CHARS} characters out of "
        f"A-Z a-z 0-9 . _ : -{extra}, the first a letter or a digit"
    )
