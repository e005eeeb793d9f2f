"""What an import did, and what it could not do."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal, TypeVar

from msgspec import Struct, field

from topics.broker.old.files import Problem

MAX_PROBLEMS_KEPT: Final = 1_000
T = TypeVar("T")


class ImportedFile(Struct, kw_only=True):
    """What became of one log."""

    file: str
    topic: str
    partition: int
    imported: int = 0
    already_there: int = 0
    problems: int = 0


class ImportedOffset(Struct, frozen=True, kw_only=True):
    """What became of one committed offset; `position` is the group's now."""

    group: str
    topic: str
    partition: int
    offset: int
    position: int
    outcome: Literal["set", "kept"]


class ImportReport(Struct, kw_only=True):
    """What a run did, or with `dry_run` would do."""

    dry_run: bool
    files: list[ImportedFile] = field(default_factory=list)
    offsets: list[ImportedOffset] = field(default_factory=list)
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list)
    """The first of them."""


class Notebook:
    """Writes a report; every problem is told at once."""

    def __init__(self, *, dry_run: bool, tell: Callable[[Problem], None]) -> None:
        self.report = ImportReport(dry_run=dry_run)
        self._tell = tell

    def note(self, problem: Problem) -> None:
        self.report.problem_count += 1
        if len(self.report.problems) < MAX_PROBLEMS_KEPT:
            self.report.problems.append(problem)
        self._tell(problem)

    def sound(self, found: Iterable[T | Problem]) -> Iterator[T]:
        """Pass on what could be read, and note what could not."""
        for item in found:
            if isinstance(item, Problem):
                self.note(item)
            else:
                yield item
