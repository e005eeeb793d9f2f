"""`topics.open`: the log inside your process, like SQLite. No server, one process per directory.

Owns an engine and its background threads. `Log` is thread-safe; its values and errors are those of
the whole package.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from topics.allocator import keep_freed_memory
from topics.clock import Clock, SystemClock
from topics.closing import Closing
from topics.config import ServerConfig, nearest
from topics.engine.background import Background
from topics.engine.diff import DiffRequest
from topics.engine.engine import Engine
from topics.engine.groups.requests import build_request
from topics.engine.listing import list_topic
from topics.engine.request import Write, build_diff_request, build_write, read_write
from topics.engine.topics.partitioned import Partitioned
from topics.engine.topics.topic import Topic
from topics.errors import ConfigError, TopicNotFound, TopicsError
from topics.handles.face import HandlesFace
from topics.handles.membership import Ask
from topics.handles.outbox import DELIVERY_S, pause_s_of
from topics.limits import DEFAULT_BATCH_BYTES, DEFAULT_LIMIT, check_topic_name
from topics.model.append import Appended
from topics.model.backups import BackedUp
from topics.model.delete import Deleted
from topics.model.diff import Page, parse_match
from topics.model.groups import (
    DEFAULT_SESSION_MS,
    Assignor,
    CommitRequest,
    Committed,
    GroupState,
    Heartbeat,
    HeartbeatRequest,
    Joined,
    JoinRequest,
    LeaveRequest,
    Polled,
    PollRequest,
    SeekPoint,
    SeekRequest,
    Sought,
    WirePartitions,
    WirePositions,
)
from topics.model.queues import (
    Acked,
    AckRequest,
    Claimed,
    ClaimRequest,
    Extended,
    ExtendRequest,
    Nacked,
    NackRequest,
    Redriven,
    RedriveRequest,
)
from topics.model.routers import RouterState
from topics.model.stream import PageRequest
from topics.model.topics import ListedTopic, TopicState
from topics.storage.disk.disk import Disk, DiskLock
from topics.storage.disk.local_disk import LocalDisk
from topics.storage.segments.store import FolderStore

LOOK_S: Final = 0.01
"""How often a read that waits looks whether there is something."""


def open_log(
    path: str | None = None,
    *,
    config: ServerConfig | None = None,
    **settings: Any,  # noqa: ANN401 - a setting is a number or text
) -> "Log":
    """Open a data directory, creating it where there is none.

    `settings` are those of `ServerConfig` (docs/reference/configuration.md); `path` is `data_dir`.
    """
    return Log(configure(path, config, settings))


def configure(
    path: str | None, config: ServerConfig | None, settings: Mapping[str, Any]
) -> ServerConfig:
    """Return a config with some settings changed; a name nobody knows is refused."""
    if path is not None:
        settings = {**settings, "data_dir": path}
    known = ServerConfig.__struct_fields__
    for name in settings:
        if name not in known:
            raise ConfigError(f"unknown setting {name!r}{nearest(name, known)}")
    return msgspec.structs.replace(config or ServerConfig(), **settings)


class Log(HandlesFace, Closing):
    """An open log."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        disk: Disk | None = None,
        cold_disk: Disk | None = None,
        clock: Clock | None = None,
        background: bool = True,
        lock: DiskLock | None = None,
        progress: Callable[[float], None] = lambda _: None,
    ) -> None:
        keep_freed_memory(config.keep_freed_bytes)
        if cold_disk is None and config.cold_dir is not None:
            cold_disk = LocalDisk(config.cold_dir, name="the cold tier: ")
        self.engine = Engine(
            disk or LocalDisk(config.data_dir),
            config,
            clock=clock or SystemClock(),
            cold=None if cold_disk is None else FolderStore(cold_disk, mapped=False),
            lock=lock,
            progress=progress,
        )
        self._clock = self.engine.clock
        self._background = Background(self.engine) if background else None

    # Topics.

    def create(self, topic: str, **config: Any) -> TopicState:  # noqa: ANN401 - any JSON
        """Create a topic, or change the config of an existing one; return its state.

        With `partitions` a partitioned one, or more of them.
        """
        self.engine.create_topic(topic, config)
        return self.engine.topic_state(topic, touch=False)

    def drop(self, topic: str, *, if_empty: bool = False) -> bool:
        """Delete a topic with all that it holds; False where there was none."""
        return self.engine.delete_topic(topic, if_empty=if_empty)

    def state(self, topic: str) -> TopicState:
        check_topic_name(topic)
        return self.engine.topic_state(topic)

    def topics(self, prefix: str = "") -> list[str]:
        """Return the names of the topics, sorted."""
        return self.engine.names([prefix], limit=sys.maxsize)

    def listed(self, prefix: str = "") -> list[ListedTopic]:
        """Return the topics with their heads and sizes, sorted by name."""
        found = [list_topic(self.engine, name) for name in self.topics(prefix)]
        return [topic for topic in found if topic is not None]

    # Records.

    def append(
        self,
        topic: str,
        records: Iterable[Mapping[str, Any]],
        *,
        node: str | None = None,
        idempotency_key: str | None = None,
        producer_id: str | None = None,
        producer_seq: int | None = None,
        create: bool = True,
        queue: bool = False,
    ) -> Appended:
        """Append records (`data`, and optionally `tag`, `node`, `meta`), all or nothing.

        To a partitioned topic, where they may have a `key`: all or nothing a partition.
        """
        parent = self.engine.find_partitioned(topic)
        write = build_write(
            records,
            self.engine.config,
            node=node,
            idempotency_key=idempotency_key,
            producer_id=producer_id,
            producer_seq=producer_seq,
            create=create,
            queue=queue,
            keyed=parent is not None,
        )
        return self._append(topic, parent, write)

    def append_json(self, topic: str, body: bytes) -> Appended:
        """Append a JSON body as it comes over HTTP: `{"records": [...], "idempotency_key": …}`."""
        parent = self.engine.find_partitioned(topic)
        write = read_write(body, self.engine.config, keyed=parent is not None)
        return self._append(topic, parent, write)

    def diff(  # noqa: PLR0913 - one argument a field of the contract
        self,
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
    ) -> Page:
        """Read what comes after `from_seq`: records, the loss before them, where to go on.

        Only what is at or after `from_ts` and before `until_ts`, milliseconds since the epoch.
        With `wait_ms` it waits that long for something to read.
        """
        found = self._existing(topic)
        request = build_diff_request(
            found.config,
            self.engine.config,
            from_seq=from_seq,
            from_ts=from_ts,
            until_ts=until_ts,
            limit=limit,
            node=node,
            match=match,
            include_tags=include_tags,
            include_meta=include_meta,
            max_batch_bytes=max_batch_bytes,
            verify=self.engine.config.verify_reads,
        )
        page = self.engine.diff(found, request)
        return self._wait_for_news(found, request, page, wait_ms=wait_ms) if wait_ms else page

    def read_page(self, request: PageRequest) -> Page:
        """Read for a handle."""
        return self.diff(
            request.topic,
            from_seq=request.from_seq,
            from_ts=request.from_ts,
            until_ts=request.until_ts,
            limit=request.limit,
            node=request.node,
            match=request.match,
            wait_ms=request.wait_ms,
        )

    def delete(self, topic: str, *, before_seq: int | None = None, match: object = None) -> Deleted:
        """Delete records for good: below a seq, by tag, or both."""
        parsed = None if match is None else parse_match(match)
        return self.engine.delete_records(
            self._existing(topic), before_seq=before_seq, match=parsed
        )

    # Jobs.

    def claim(
        self,
        topic: str,
        *,
        node: str,
        max: int = 1,  # noqa: A002 - its name on the wire
        lease_ms: int | None = None,
    ) -> Claimed:
        """Take up to `max` jobs of a queue for `lease_ms`."""
        request = ClaimRequest(node=node, max=max, lease_ms=lease_ms)
        return self.engine.claim(self._existing(topic), request)

    def ack(
        self, topic: str, seqs: Sequence[int], *, node: str, lease_ids: Sequence[str] | None = None
    ) -> Acked:
        """Delete jobs that are done."""
        request = AckRequest(node=node, seqs=seqs, lease_ids=lease_ids)
        return self.engine.ack(self._existing(topic), request)

    def nack(
        self,
        topic: str,
        seqs: Sequence[int],
        *,
        node: str,
        lease_ids: Sequence[str] | None = None,
        delay_ms: int = 0,
    ) -> Nacked:
        """Give jobs back, to be claimed again after `delay_ms`."""
        request = NackRequest(node=node, seqs=seqs, lease_ids=lease_ids, delay_ms=delay_ms)
        return self.engine.nack(self._existing(topic), request)

    def extend(
        self,
        topic: str,
        seqs: Sequence[int],
        *,
        node: str,
        lease_ms: int,
        lease_ids: Sequence[str] | None = None,
    ) -> Extended:
        """Hold jobs for `lease_ms` from now."""
        request = ExtendRequest(node=node, seqs=seqs, lease_ids=lease_ids, lease_ms=lease_ms)
        return self.engine.extend(self._existing(topic), request)

    def redrive(
        self,
        topic: str,
        *,
        to: str | None = None,
        max: int = 100,  # noqa: A002 - its name on the wire
    ) -> Redriven:
        """Bring up to `max` dead letters back to their queues, oldest first, or all to one."""
        request = build_request(RedriveRequest, {"to": to, "max": max})
        check_topic_name(topic)
        letters = self.engine.find_partitioned(topic) or self.engine.topic(topic)
        return self.engine.redrive(letters, to=request.to, wanted=request.max, check_name=_any_name)

    # Routers.

    def put_router(self, router: str, **fields: Any) -> RouterState:  # noqa: ANN401 - any JSON
        """Create a router, or change one; return its state."""
        self.engine.put_router(router, fields)
        return self.engine.router_state(router)

    def delete_router(self, router: str) -> bool:
        """Remove a router; False where there was none."""
        return self.engine.delete_router(router)

    def router_state(self, router: str) -> RouterState:
        return self.engine.router_state(router)

    def routers(self) -> list[RouterState]:
        """Return every router, by name."""
        return self.engine.routers()

    # Groups.

    def join(
        self,
        group: str,
        *,
        member: str,
        topics: Sequence[str],
        session_ms: int = DEFAULT_SESSION_MS,
        assignor: Assignor = "sticky",
    ) -> Joined:
        """Become a member of a group, which is made where there is none."""
        fields = {"member": member, "topics": topics, "session_ms": session_ms}
        request = build_request(JoinRequest, {**fields, "assignor": assignor})
        return self.engine.groups.join(group, request)

    def heartbeat(
        self, group: str, *, member: str, generation: int, released: WirePartitions | None = None
    ) -> Heartbeat:
        """Say that a member lives, and which partitions it has given up."""
        fields = {"member": member, "generation": generation, "released": released}
        return self.engine.groups.heartbeat(group, build_request(HeartbeatRequest, fields))

    def leave(self, group: str, *, member: str) -> bool:
        """Leave a group; False where there was no such member."""
        return self.engine.groups.leave(group, build_request(LeaveRequest, {"member": member})).left

    def commit(
        self,
        group: str,
        offsets: WirePositions,
        *,
        member: str | None = None,
        generation: int | None = None,
    ) -> Committed:
        """Note how far a group has come; without a member as an operator."""
        fields = {"offsets": offsets, "member": member, "generation": generation}
        return self.engine.groups.commit(group, build_request(CommitRequest, fields))

    def poll(
        self,
        group: str,
        *,
        member: str,
        generation: int,
        limit: int = DEFAULT_LIMIT,
        positions: WirePositions | None = None,
        from_ts: int = 0,
        until_ts: int = 0,
        wait_ms: int = 0,
    ) -> Polled:
        """Read what a member has not read yet in all its partitions."""
        fields = {"member": member, "generation": generation, "limit": limit}
        times = {"from_ts": from_ts, "until_ts": until_ts, "wait_ms": wait_ms}
        more = {"positions": positions, "include_tags": True}
        request = build_request(PollRequest, {**fields, **times, **more})
        return self.engine.groups.poll(group, request)

    def seek(
        self,
        group: str,
        *,
        to: Literal["earliest", "latest"] | SeekPoint,
        topics: Mapping[str, Sequence[int] | None] | None = None,
        dry_run: bool = False,
    ) -> Sought:
        """Move the progress of a group that has no members."""
        fields = {"to": to, "topics": topics, "dry_run": dry_run}
        return self.engine.groups.seek(group, build_request(SeekRequest, fields))

    def group_state(self, group: str) -> GroupState:
        return self.engine.groups.state(group)

    def groups(self) -> list[str]:
        return self.engine.groups.names()

    def drop_group(self, group: str) -> bool:
        """Remove a group that has no members, with its progress; False where there was none."""
        return self.engine.groups.drop(group)

    # Keeping.

    def sync(self) -> None:
        """Make everything acknowledged so far durable, of every class that can be."""
        self.engine.sync()

    def checkpoint(self) -> None:
        """Copy the log's tail into segments and trim the WAL; the background does it by itself."""
        self.engine.snapshot()
        self.engine.maintain()

    def backup(self, directory: str) -> BackedUp:
        """Copy everything, as it is at one moment, into a new directory; writes go on."""
        return self.engine.backup(LocalDisk(directory, name="the backup: "))

    @property
    def last_error(self) -> TopicsError | None:
        """What the background could not do, if its last try failed."""
        return self._background.last_error if self._background else None

    def close(self) -> None:
        if self._background is not None:
            self._background.stop()
        self.engine.close()

    def _deliver(self, topic: str, body: bytes) -> Appended:
        """Append for a producer; what finds no room waits for it."""
        deadline_s = self._clock.monotonic_s() + DELIVERY_S
        while True:
            try:
                return self.append_json(topic, body)
            except TopicsError as error:
                pause_s = pause_s_of(error)
                if pause_s is None or self._clock.monotonic_s() + pause_s > deadline_s:
                    raise
            self._clock.sleep(pause_s)

    def _ask(self, ask: Ask, *, retry_for_s: float | None = None) -> Any:  # noqa: ANN401, ARG002 - the answer of any call; nothing is ever away
        return getattr(self, ask.word)(ask.group, **ask.fields)

    def _append(self, topic: str, parent: Partitioned | None, write: Write) -> Appended:
        if parent is not None:
            return self.engine.append_partitioned(parent, write)
        found, created = self.engine.topic_for_write(topic, write)
        appended = self.engine.append(found, write)
        return msgspec.structs.replace(appended, created=True) if created else appended

    def _wait_for_news(
        self, topic: Topic, request: DiffRequest, page: Page, *, wait_ms: int
    ) -> Page:
        """Look again and again: a reader in this process wakes within `LOOK_S` of a write."""
        deadline_s = self._clock.monotonic_s() + wait_ms / 1000
        while not page.is_news and self._clock.monotonic_s() < deadline_s:
            self._clock.sleep(LOOK_S)
            if self.engine.topic(topic.name) is not topic:
                raise TopicNotFound(topic.name)
            page = self.engine.diff(topic, request)
        return page

    def _existing(self, topic: str) -> Topic:
        check_topic_name(topic)
        return self.engine.topic(topic)


def _any_name(_name: str) -> None:
    """Refuse nobody: whoever has the directory open may do anything."""
