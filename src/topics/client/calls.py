"""The map of the API for clients: one function a call, from Python values to a `Call`. No I/O."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from topics.client import replies
from topics.client.request import Call, Flow, Request
from topics.limits import DEFAULT_BATCH_BYTES, DEFAULT_LIMIT, check_router_name, check_topic_name
from topics.model.append import Appended
from topics.model.delete import Deleted
from topics.model.diff import Page
from topics.model.encode import encode_json, list_records
from topics.model.queues import Acked, Claimed, Extended, Nacked, Redriven
from topics.model.routers import RouterState
from topics.model.topics import ListedTopic, TopicState

PAGE_SIZE = 1000


def post(path: str, fields: Mapping[str, object]) -> Request:
    given = {name: value for name, value in fields.items() if value is not None}
    return Request(method="POST", path=path, body=encode_json(given))


def topic_path(topic: str, word: str = "") -> str:
    return f"/v0/topics/{quote(check_topic_name(topic), safe='')}{word}"


def _router_path(router: str) -> str:
    return f"/v0/routers/{quote(check_router_name(router), safe='')}"


# Topics.


def put_topic(topic: str, config: Mapping[str, Any]) -> Call[bool]:
    request = Request(method="PUT", path=topic_path(topic), body=encode_json(config))
    return Call(request=request, decode=replies.read_was_created, repeatable=True, name=topic)


def state(topic: str, *, touch: bool = True) -> Call[TopicState]:
    path = topic_path(topic) + ("" if touch else "?touch=false")
    request = Request(method="GET", path=path)
    return Call(request=request, decode=replies.read_state, repeatable=True, name=topic)


def create(topic: str, config: Mapping[str, Any]) -> Flow[TopicState]:
    """Create or change a topic, then look at it."""
    yield put_topic(topic, config)
    found: TopicState = yield state(topic, touch=False)
    return found


def drop(topic: str, *, if_empty: bool) -> Call[bool]:
    path = topic_path(topic) + ("?if_empty=true" if if_empty else "")
    request = Request(method="DELETE", path=path)
    return Call(request=request, decode=replies.read_was_deleted, repeatable=True, name=topic)


def listed(prefix: str) -> Flow[list[ListedTopic]]:
    """Turn the pages of the list."""
    found: list[ListedTopic] = []
    cursor: str | None = None
    while True:
        query = query_of(prefix=prefix, page_size=PAGE_SIZE, cursor=cursor)
        request = Request(method="GET", path=f"/v0/topics{query}")
        page: replies.TopicPage = yield Call(
            request=request, decode=replies.read_topic_page, repeatable=True
        )
        found += page.topics
        cursor = page.next_cursor
        if cursor is None:
            return found


def topics(prefix: str) -> Flow[list[str]]:
    """Return names alone."""
    found = yield from listed(prefix)
    return [topic.topic for topic in found]


# Records.


def append(
    topic: str,
    records: Iterable[Mapping[str, Any]],
    *,
    node: str | None = None,
    idempotency_key: str | None = None,
    producer_id: str | None = None,
    producer_seq: int | None = None,
    create: bool = True,
    queue: bool = False,
) -> Call[Appended]:
    fields = {
        "records": list_records(records),
        "node": node,
        "idempotency_key": idempotency_key,
        "producer_id": producer_id,
        "producer_seq": producer_seq,
        "create": None if create else False,
        "queue": queue or None,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    repeatable = idempotency_key is not None or producer_id is not None
    return append_json(topic, encode_json(given), repeatable=repeatable)


def append_json(topic: str, body: bytes, *, repeatable: bool = False) -> Call[Appended]:
    request = Request(method="POST", path=topic_path(topic), body=body)
    return Call(request=request, decode=replies.read_appended, repeatable=repeatable, name=topic)


def diff(  # noqa: PLR0913 - one argument a field of the contract
    topic: str,
    *,
    from_seq: int = 0,
    from_ts: int = 0,
    until_ts: int = 0,
    limit: int = DEFAULT_LIMIT,
    node: str | Sequence[str] = (),
    match: object = None,
    include_tags: bool = True,
    include_meta: bool = True,
    max_batch_bytes: int = DEFAULT_BATCH_BYTES,
    wait_ms: int = 0,
) -> Call[Page]:
    fields = {
        "from_seq": from_seq,
        "from_ts": from_ts or None,
        "until_ts": until_ts or None,
        "limit": limit,
        "node": node if isinstance(node, str) else list(node) or None,
        "match": match,
        "include_tags": include_tags,
        "include_meta": include_meta,
        "max_batch_bytes": max_batch_bytes,
        "wait_ms": wait_ms,
    }
    request = post(topic_path(topic, "/diff"), fields)
    return Call(
        request=request, decode=replies.read_page, repeatable=True, name=topic, wait_ms=wait_ms
    )


def delete(topic: str, *, before_seq: int | None, match: object) -> Call[Deleted]:
    fields = {"before_seq": before_seq, "match": match}
    request = post(topic_path(topic, "/delete"), fields)
    return Call(request=request, decode=replies.read_deleted_records, repeatable=True, name=topic)


# Jobs.


def claim(topic: str, *, node: str, max_jobs: int, lease_ms: int | None) -> Call[Claimed]:
    fields = {"node": node, "max": max_jobs, "lease_ms": lease_ms}
    request = post(topic_path(topic, "/claim"), fields)
    # Not repeatable: an answer that is lost has leased its jobs, and a second one leases others.
    return Call(request=request, decode=replies.read_claimed, repeatable=False, name=topic)


def ack(
    topic: str, seqs: Sequence[int], *, node: str, lease_ids: Sequence[str] | None
) -> Call[Acked]:
    fields = {"node": node, "seqs": list(seqs), "lease_ids": lease_ids}
    request = post(topic_path(topic, "/ack"), fields)
    return Call(request=request, decode=replies.read_acked, repeatable=True, name=topic)


def nack(
    topic: str, seqs: Sequence[int], *, node: str, lease_ids: Sequence[str] | None, delay_ms: int
) -> Call[Nacked]:
    fields = {"node": node, "seqs": list(seqs), "lease_ids": lease_ids, "delay_ms": delay_ms}
    request = post(topic_path(topic, "/nack"), fields)
    # Without lease ids a second one could give back what was claimed again in between.
    repeatable = lease_ids is not None
    return Call(request=request, decode=replies.read_nacked, repeatable=repeatable, name=topic)


def extend(
    topic: str, seqs: Sequence[int], *, node: str, lease_ids: Sequence[str] | None, lease_ms: int
) -> Call[Extended]:
    fields = {"node": node, "seqs": list(seqs), "lease_ids": lease_ids, "lease_ms": lease_ms}
    request = post(topic_path(topic, "/extend"), fields)
    return Call(request=request, decode=replies.read_extended, repeatable=True, name=topic)


def redrive(topic: str, *, to: str | None, max_jobs: int) -> Call[Redriven]:
    request = post(topic_path(topic, "/redrive"), {"to": to, "max": max_jobs})
    # Not repeatable: a second one moves the next letters.
    return Call(request=request, decode=replies.read_redriven, repeatable=False, name=topic)


# Routers.


def put_router(router: str, fields: Mapping[str, Any]) -> Flow[RouterState]:
    """Create or change a router, then look at it."""
    request = Request(method="PUT", path=_router_path(router), body=encode_json(fields))
    yield Call(request=request, decode=replies.read_was_created, repeatable=True, name=router)
    found: RouterState = yield router_state(router)
    return found


def router_state(router: str) -> Call[RouterState]:
    request = Request(method="GET", path=_router_path(router))
    return Call(request=request, decode=replies.read_router, repeatable=True, name=router)


def delete_router(router: str) -> Call[bool]:
    request = Request(method="DELETE", path=_router_path(router))
    return Call(request=request, decode=replies.read_was_deleted, repeatable=True, name=router)


def routers() -> Flow[list[RouterState]]:
    """Turn the pages of the list."""
    found: list[RouterState] = []
    cursor: str | None = None
    while True:
        query = query_of(page_size=PAGE_SIZE, cursor=cursor)
        request = Request(method="GET", path=f"/v0/routers{query}")
        page: replies.RouterPage = yield Call(
            request=request, decode=replies.read_router_page, repeatable=True
        )
        found += [replies.router_of(fields) for fields in page.routers]
        cursor = page.next_cursor
        if cursor is None:
            return found


# The server.


def health() -> Call[replies.Health]:
    request = Request(method="GET", path="/v0/health")
    return Call(request=request, decode=replies.read_health, repeatable=True)


def ready() -> Call[replies.Ready]:
    request = Request(method="GET", path="/v0/ready")
    return Call(request=request, decode=replies.read_ready, repeatable=True)


def metrics() -> Call[str]:
    request = Request(method="GET", path="/v0/metrics", accept="text/plain")
    return Call(request=request, decode=replies.read_text, repeatable=True)


def query_of(**parameters: object) -> str:
    given = {name: value for name, value in parameters.items() if value not in (None, "")}
    return f"?{urlencode(given)}" if given else ""
