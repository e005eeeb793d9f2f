"""Which call of a hostile disk fails, and how.

Calls are counted from 0, from the moment the plan is given to a disk. A fault without an operation
counts every call that changes the disk (`MUTATIONS`): those are the cut points of a run. A fault
with an operation counts the calls of that operation only, reads too.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal, get_args

from topics.errors import DiskFailed, DiskFull, TooManyFiles

Mutation = Literal[
    "allocate", "create", "make_dir", "remove_dir", "rename",
    "sync_data", "sync_dir", "truncate", "unlink", "write_at",
]  # fmt: skip
Operation = (
    Mutation
    | Literal["exists", "list", "lock", "map", "open", "page_cache_id", "read", "read_at", "size"]
)
MUTATIONS: Final[frozenset[str]] = frozenset(get_args(Mutation))


REASONS: Final[dict[type[DiskFailed], str]] = {
    DiskFull: "No space left on device",
    TooManyFiles: "Too many open files",
}


class PowerCut(BaseException):
    """The process is gone: raised by this call and by all later ones, so that nothing sneaks in."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens at one call, or from one call on."""

    at_call: int
    error: type[DiskFailed] | None = None
    operation: Operation | None = None
    path: str = "*"
    forever: bool = False
    written_bytes: int | None = None

    def error_for(self, path: str) -> BaseException:
        if self.error is None:
            return PowerCut(f"power was cut at {path}")
        reason = REASONS.get(self.error, "Input/output error")
        return self.error(f"{path}: {reason} (injected)")

    def is_for(self, operation: Operation, path: str) -> bool:
        if self.operation is None and operation not in MUTATIONS:
            return False
        named = self.operation in {None, operation}
        return named and (self.path == "*" or fnmatchcase(path, self.path))


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Faults to come. A value: each method returns a longer plan."""

    faults: tuple[Fault, ...] = ()

    def cut_power(
        self, *, at_call: int, operation: Operation | None = None, path: str = "*"
    ) -> "FaultPlan":
        """Cut before the call takes effect: part of its effect is a cut before the next one."""
        return self._plus(Fault(at_call, operation=operation, path=path))

    def fail(
        self,
        *,
        at_call: int = 0,
        operation: Operation | None = None,
        path: str = "*",
        error: type[DiskFailed] = DiskFailed,
        forever: bool = False,
    ) -> "FaultPlan":
        """Fail one call, or all from it on; without effect, but a failed sync spoils its file."""
        return self._plus(Fault(at_call, error, operation, path, forever))

    def write_short(
        self,
        *,
        at_call: int = 0,
        written_bytes: int,
        operation: Literal["write_at"] | None = "write_at",
        path: str = "*",
        error: type[DiskFailed] = DiskFull,
    ) -> "FaultPlan":
        """Write only the first bytes, then fail; a call that writes nothing passes."""
        return self._plus(Fault(at_call, error, operation, path, written_bytes=written_bytes))

    def _plus(self, fault: Fault) -> "FaultPlan":
        return FaultPlan((*self.faults, fault))


NO_FAULTS: Final = FaultPlan()
