"""The calls about consumer groups: one half of `Topics`. Reference: docs/reference/groups.md."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar

from topics.client import group_calls
from topics.client.request import Call, Flow
from topics.errors import GroupNotFound
from topics.limits import DEFAULT_LIMIT
from topics.model.groups import (
    DEFAULT_SESSION_MS,
    Assignor,
    Committed,
    GroupState,
    Heartbeat,
    Joined,
    Polled,
    SeekPoint,
    Sought,
    WirePartitions,
    WirePositions,
)

T = TypeVar("T")


class GroupsFace(ABC):
    """What consumers and their operators do."""

    @abstractmethod
    def _call(self, call: Call[T], *, retry_for_s: float | None = None) -> T: ...

    @abstractmethod
    def _flow(self, flow: Flow[T]) -> T: ...

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
        return self._call(
            group_calls.join(
                group, member=member, topics=topics, session_ms=session_ms, assignor=assignor
            )
        )

    def heartbeat(
        self, group: str, *, member: str, generation: int, released: WirePartitions | None = None
    ) -> Heartbeat:
        """Say that a member lives, and which partitions it has given up."""
        return self._call(
            group_calls.heartbeat(group, member=member, generation=generation, released=released)
        )

    def leave(self, group: str, *, member: str) -> bool:
        """Leave a group; False where there was no such member."""
        return self._call(group_calls.leave(group, member=member))

    def commit(
        self,
        group: str,
        offsets: WirePositions,
        *,
        member: str | None = None,
        generation: int | None = None,
    ) -> Committed:
        """Note how far a group has come; without a member as an operator."""
        return self._call(group_calls.commit(group, offsets, member=member, generation=generation))

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
        return self._call(
            group_calls.poll(
                group,
                member=member,
                generation=generation,
                limit=limit,
                positions=positions,
                window=(from_ts, until_ts),
                wait_ms=wait_ms,
            )
        )

    def seek(
        self,
        group: str,
        *,
        to: Literal["earliest", "latest"] | SeekPoint,
        topics: Mapping[str, Sequence[int] | None] | None = None,
        dry_run: bool = False,
    ) -> Sought:
        """Move the progress of a group that has no members."""
        return self._call(group_calls.seek(group, to=to, topics=topics, dry_run=dry_run))

    def group_state(self, group: str) -> GroupState:
        return self._call(group_calls.group_state(group))

    def groups(self) -> list[str]:
        return self._flow(group_calls.groups())

    def drop_group(self, group: str) -> bool:
        """Remove a group that has no members, with its progress; False where there was none."""
        try:
            return self._call(group_calls.drop_group(group))
        except GroupNotFound:
            return False
