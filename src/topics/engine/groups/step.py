"""One step of a group on its way to the disk, and what it will answer.

A step happens in memory at once, under the lock of the first shard, and is undone when its frames
cannot be written. Keeps: an answer, also a refusal, tells only of what is synced: it waits for the
frames of its own step and for those of the group that are still on their way.
"""

from collections.abc import Mapping

from topics.engine.groups.assign import Partition
from topics.engine.groups.group import Group, Place
from topics.engine.groups.membership import Membership
from topics.engine.groups.replay import GroupTable, commit_frame, delete_frame, state_frame
from topics.errors import GroupNotFound, TopicsError
from topics.storage.wal.group_commit import Commitment, Waiter


class Step:
    """What one operation does to one group."""

    def __init__(self, table: GroupTable, name: str, *, create: bool, now_s: float) -> None:
        self.table = table
        self.name = name
        self.now_s = now_s
        self.is_new = create and name not in table.groups
        found = table.group(name) if create else table.groups.get(name)
        self._group = found
        self._before = found.membership if found else Membership()
        self._replaced: dict[Partition, Place | None] = {}
        self._moved: dict[Partition, Place] = {}
        self._ended = False

    @property
    def group(self) -> Group:
        if self._group is None:
            raise GroupNotFound(self.name)
        return self._group

    @property
    def found(self) -> Group | None:
        return self._group

    @property
    def is_changed(self) -> bool:
        return self._group is not None and self._group.membership is not self._before

    # Changes.

    def change(self, membership: Membership) -> None:
        self.group.change(membership)

    def move(self, places: Mapping[Partition, Place]) -> None:
        """Set positions."""
        for partition in places:
            self._replaced.setdefault(partition, self.group.committed.get(partition))
        self._moved.update(places)
        self.group.move(places)

    def end(self) -> None:
        """End the group."""
        self._ended = True
        self.table.floor = max(self.table.floor, self.group.generation)
        del self.table.groups[self.name]

    # What becomes of them.

    def frames(self) -> list[bytes]:
        """Return what has to be written for this step."""
        group = self._group
        if group is None:
            return []
        if self._ended:
            return [delete_frame(group)]
        frames = [state_frame(group)] if self.is_changed else []
        if self._moved or (self.is_new and not frames):
            frames.append(commit_frame(group, self._moved))
        return frames

    def undo(self) -> None:
        group = self._group
        if group is None:
            return
        for partition, place in self._replaced.items():
            if place is None:
                del group.committed[partition]
            else:
                group.committed[partition] = place
        if self.is_changed:
            group.change(self._before)
            group.seen = {}  # what was new is to be seen again
        if self.is_new:
            del self.table.groups[self.name]
        elif self._ended:
            self.table.groups[self.name] = group

    def notify(self) -> None:
        if self.is_changed:
            self.group.notify()


class Word(Commitment):
    """A step on its way; answered, or refused, when everything it tells is synced."""

    __slots__ = ("_answer", "_refusal", "_step")

    def __init__(
        self,
        step: Step,
        answer: object,
        *,
        refusal: TopicsError | None = None,
        waiter: Waiter | None = None,
    ) -> None:
        if refusal is not None and step.is_new:
            step.undo()
            step = Step(step.table, step.name, create=False, now_s=step.now_s)
        frames = step.frames()
        waits = step.table.awaiting_sync
        needs_sync = bool(frames) or waits[step.name] > 0
        super().__init__(frames, frames=len(frames), needs_sync=needs_sync, waiter=waiter)
        waits[step.name] += bool(frames)
        self._step = step
        self._answer = answer
        self._refusal = refusal

    @property
    def answer(self) -> object:
        return self._answer

    def publish(self) -> None:
        self._arrive()
        self._step.notify()
        self.error = self._refusal

    def abort(self) -> None:
        self._arrive()
        self._step.undo()

    def _arrive(self) -> None:
        """Take the step off the ones on their way."""
        waits = self._step.table.awaiting_sync
        waits[self._step.name] -= self.frames > 0
        if not waits[self._step.name]:
            del waits[self._step.name]
