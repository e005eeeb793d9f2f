"""The consumer groups of one engine: every word about them, checked, locked and put on its way.

Groups belong to the first shard: its lock guards the table, its log has their frames. Each
`submit_*` returns at once; the plain word waits for it. Keeps: every operation begins by settling
its group, so that members who were silent for too long are gone and the partitions are those that
there are now.
Reference: docs/reference/groups.md.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import cast

from topics.clock import Clock
from topics.config import ServerConfig
from topics.engine.diff import DiffRequest
from topics.engine.groups import look, poll, seek, words
from topics.engine.groups.poll import PollPlan
from topics.engine.groups.replay import GroupTable
from topics.engine.groups.step import Step, Word
from topics.engine.shard import Shard
from topics.engine.topics.topic import Topic
from topics.errors import (
    GroupNotEmpty,
    GroupNotFound,
    LimitReached,
    RequestError,
    RetryLater,
    ShardReadOnly,
    TopicExistsIncompatible,
    TopicNotFound,
)
from topics.limits import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_LIMIT,
    MAX_BATCH_BYTES,
    MAX_WAIT_MS,
    check_group_name,
    check_topic_name,
)
from topics.model.groups import (
    CommitRequest,
    Committed,
    GroupPartition,
    GroupState,
    Heartbeat,
    HeartbeatRequest,
    Joined,
    JoinRequest,
    LeaveRequest,
    Left,
    ListedGroup,
    Polled,
    PolledBatch,
    PollRequest,
    SeekRequest,
    Sought,
)
from topics.storage.snapshots.snapshot import GroupsSnapshot
from topics.storage.wal.group_commit import Waiter

POLL_STEP_S = 0.01
"""How often a thread that waits for records looks for them."""
Submitted = tuple[Shard, Word]


class Groups:
    """What consumers and operators do."""

    def __init__(
        self,
        table: GroupTable,
        shard: Shard,
        config: ServerConfig,
        *,
        clock: Clock,
        partitions_of: Callable[[str], tuple[Topic, ...]],
        read: poll.Read,
        must_forward: poll.MustForward,
        seq_at: Callable[[Topic, int], int],
    ) -> None:
        self._table = table
        self._shard = shard
        self._config = config
        self._clock = clock
        self.partitions_of = partitions_of
        """Takes no lock: it is asked with the shard's lock held."""
        self._read = read
        self._must_forward = must_forward
        self._seq_at = seq_at

    # On their way.

    def submit_join(
        self, name: str, request: JoinRequest, *, waiter: Waiter | None = None
    ) -> Submitted:
        check_group_name(name)
        self._check_member(request.member)
        for topic in request.topics:
            self._check_readable(topic)

        def act(step: Step) -> Joined:
            return words.join(step, request, max_members=self._config.max_group_members)

        return self._submit(name, act, topics=request.topics, create=True, waiter=waiter)

    def submit_heartbeat(
        self, name: str, request: HeartbeatRequest, *, waiter: Waiter | None = None
    ) -> Submitted:
        return self._submit(name, lambda step: words.heartbeat(step, request), waiter=waiter)

    def submit_leave(
        self, name: str, request: LeaveRequest, *, waiter: Waiter | None = None
    ) -> Submitted:
        return self._submit(name, lambda step: words.leave(step, request), waiter=waiter)

    def submit_commit(
        self, name: str, request: CommitRequest, *, waiter: Waiter | None = None
    ) -> Submitted:
        by_operator = request.member is None
        if by_operator:
            check_group_name(name)
            for topic in request.offsets:
                self._check_readable(topic)
        return self._submit(
            name,
            lambda step: words.commit(step, request),
            topics=request.offsets if by_operator else (),
            create=by_operator,
            waiter=waiter,
        )

    def submit_poll(
        self, name: str, request: PollRequest, *, waiter: Waiter | None = None
    ) -> Submitted:
        """Plan a poll: the answer is what to read, by `read_plan`."""
        read_request = DiffRequest(
            from_ts=request.from_ts,
            until_ts=request.until_ts,
            limit=min(request.limit or DEFAULT_LIMIT, self._config.max_limit),
            include_tags=request.include_tags,
            include_meta=request.include_meta,
            max_batch_bytes=min(request.max_batch_bytes or DEFAULT_BATCH_BYTES, MAX_BATCH_BYTES),
            verify=self._config.verify_reads,
        )
        return self._submit(
            name,
            lambda step: poll.plan_poll(step, request, read_request),
            only_reads=True,
            waiter=waiter,
        )

    def submit_seek(
        self, name: str, request: SeekRequest, *, waiter: Waiter | None = None
    ) -> Submitted:
        check_group_name(name)
        for topic in request.topics or ():
            self._check_readable(topic)

        first_seqs: dict[int, int] = {}
        if not isinstance(request.to, str) and request.to.ts is not None:
            for topic in request.topics or self.topics_of(name):
                for partition in self._find(topic):
                    first_seqs[partition.id] = self._seq_at(partition, request.to.ts)

        def act(step: Step) -> Sought:
            return seek.seek(step, request, first_seqs)

        create = bool(request.topics) and not request.dry_run
        return self._submit(name, act, topics=request.topics or (), create=create, waiter=waiter)

    def submit_look(self, name: str, *, waiter: Waiter | None = None) -> Submitted:
        return self._submit(name, look.look, only_reads=True, waiter=waiter)

    def submit_drop(self, name: str, *, waiter: Waiter | None = None) -> Submitted:
        return self._submit(name, _drop, waiter=waiter)

    # Until it is done.

    def join(self, name: str, request: JoinRequest) -> Joined:
        return cast("Joined", self._wait(self.submit_join(name, request)))

    def heartbeat(self, name: str, request: HeartbeatRequest) -> Heartbeat:
        return cast("Heartbeat", self._wait(self.submit_heartbeat(name, request)))

    def leave(self, name: str, request: LeaveRequest) -> Left:
        return cast("Left", self._wait(self.submit_leave(name, request)))

    def commit(self, name: str, request: CommitRequest) -> Committed:
        return cast("Committed", self._wait(self.submit_commit(name, request)))

    def seek(self, name: str, request: SeekRequest) -> Sought:
        return cast("Sought", self._wait(self.submit_seek(name, request)))

    def state(self, name: str) -> GroupState:
        return cast("GroupState", self._wait(self.submit_look(name)))

    def drop(self, name: str) -> bool:
        """End a group; False where there was none."""
        try:
            self._wait(self.submit_drop(name))
        except GroupNotFound:
            return False
        return True

    def poll(self, name: str, request: PollRequest) -> Polled:
        """Read what a member has not read yet, waiting for it up to `wait_ms`."""
        until_s = self._clock.monotonic_s() + min(request.wait_ms, MAX_WAIT_MS) / 1000
        while True:
            plan = cast("PollPlan", self._wait(self.submit_poll(name, request)))
            polled = self.finish_poll(plan, self.read_plan(plan))
            if polled.is_news or self._clock.monotonic_s() >= until_s:
                return polled
            request = request.behind(polled.positions)
            plan = plan.without_ended(polled.batches)
            while not self.has_news(plan) and self._clock.monotonic_s() < until_s:
                self._clock.sleep(POLL_STEP_S)
                if plan.is_over(self._clock.now_ms()):
                    break

    # The stages of a poll, for whoever answers from callbacks.

    def read_plan(self, plan: PollPlan) -> list[PolledBatch]:
        return poll.read_turns(plan, self._read, self._must_forward)

    def finish_poll(self, plan: PollPlan, batches: list[PolledBatch]) -> Polled:
        with self._shard.lock:
            return poll.finish_poll(plan, batches)

    def has_news(self, plan: PollPlan) -> bool:
        return plan.has_news(self._must_forward)

    # Looking, and time.

    def names(self) -> list[str]:
        with self._shard.lock:
            return sorted(self._table.groups)

    def listed(self, name: str) -> ListedGroup | None:
        with self._shard.lock:
            group = self._table.groups.get(name)
            return look.list_one(group) if group else None

    def topics_of(self, name: str) -> list[str]:
        """Return every topic that a group has to do with; none where there is no group."""
        with self._shard.lock:
            group = self._table.groups.get(name)
            return sorted(group.topics) if group else []

    def progress(self, name: str) -> list[GroupPartition]:
        """Return how far a group has come, for those who count; it may not be synced yet."""
        with self._shard.lock:
            group = self._table.groups.get(name)
            if group is None:
                return []
            # Only for this look: `_settle` has to see for itself what is new.
            before, group.seen = group.seen, self._seen(group.topics)
            shown = look.partitions_of(group)
            group.seen = before
            return shown

    def save(self) -> GroupsSnapshot:
        """Return all groups as a start would have to find them; the shard's lock is held."""
        return self._table.save()

    def sweep(self) -> None:
        """Let members go that were silent for too long, and see partitions that came or went."""
        # Without members nobody is silent: the next word about a group brings it up to now.
        for name in [n for n, g in list(self._table.groups.items()) if g.membership.members]:
            # A log that is full or failed has no room for it: the next word tries again.
            with suppress(RetryLater, ShardReadOnly), self._shard.lock:
                step = Step(self._table, name, create=False, now_s=self._clock.monotonic_s())
                self._shard.commit.admit(0)
                if step.found is not None:
                    self._settle(step, ())
                if step.is_changed:
                    self._shard.commit.submit(Word(step, None))

    def listen(self, plan: PollPlan, listener: Callable[[], None]) -> None:
        """Hear of the end of a generation, with the shard's lock held: only take note."""
        with self._shard.lock:
            plan.group.listeners[listener] = None

    def unlisten(self, plan: PollPlan, listener: Callable[[], None]) -> None:
        with self._shard.lock:
            plan.group.listeners.pop(listener, None)

    # Inside.

    def _submit(
        self,
        name: str,
        act: Callable[[Step], object],
        *,
        topics: Iterable[str] = (),
        create: bool = False,
        only_reads: bool = False,
        waiter: Waiter | None = None,
    ) -> Submitted:
        """Settle a group, do something to it, and queue what has to be written for it."""
        shard = self._shard
        with shard.lock:
            may_change = self._admit(only_reads=only_reads)
            if create:
                self._check_room(name)
            step = Step(self._table, name, create=create, now_s=self._clock.monotonic_s())
            answer, refusal = None, None
            try:
                if step.found is not None:
                    self._settle(step, topics, may_change=may_change)
                answer = act(step)
            except (RequestError, RetryLater) as error:
                refusal = error
            word = Word(step, answer, refusal=refusal, waiter=waiter)
            shard.commit.submit(word)
        return shard, word

    def _admit(self, *, only_reads: bool) -> bool:
        """Tell whether membership may change; not on a log that failed, where reads go on."""
        try:
            self._shard.commit.admit(0)
        except ShardReadOnly:
            if not only_reads:
                raise
            return False
        return True

    def _settle(self, step: Step, topics: Iterable[str], *, may_change: bool = True) -> None:
        """Bring a group up to now; where nothing can be written, only what it sees."""
        group = step.group
        gone = set(group.expired(step.now_s))
        seen = self._seen({*group.topics, *topics})
        is_same = seen == group.seen
        group.seen = seen
        now = group.membership
        is_settled = is_same or words.ids_of(group, now.members) == now.partitions
        if may_change and (gone or not is_settled):
            step.change(words.without(group, gone))

    def _seen(self, topics: Iterable[str]) -> Mapping[str, tuple[Topic, ...]]:
        return {topic: self._find(topic) for topic in topics}

    def _find(self, name: str) -> tuple[Topic, ...]:
        """Return the partitions of a topic; none where it is gone, or a queue now."""
        try:
            topics = self.partitions_of(name)
        except TopicNotFound:
            return ()
        return () if any(topic.queue is not None for topic in topics) else topics

    def _wait(self, submitted: Submitted) -> object:
        shard, word = submitted
        shard.commit.commit(word)
        return word.answer

    def _check_readable(self, name: str) -> None:
        """Refuse a topic that is not there, or that is a queue."""
        check_topic_name(name)
        if any(topic.queue is not None for topic in self.partitions_of(name)):
            raise TopicExistsIncompatible(
                f"topic {name!r} is a queue: its jobs are claimed, a group reads logs"
            )

    def _check_member(self, member: str) -> None:
        if not 1 <= len(member.encode()) <= self._config.max_node_bytes:
            raise RequestError(
                f"member must have 1 to {self._config.max_node_bytes} bytes, as a node"
            )

    def _check_room(self, name: str) -> None:
        table, most = self._table.groups, self._config.max_groups
        if name not in table and most and len(table) >= most:
            raise LimitReached("max_groups", most)


def _drop(step: Step) -> None:
    if step.group.membership.members:
        raise GroupNotEmpty(step.name)
    step.end()
