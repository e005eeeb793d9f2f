"""The gate that every call on a hostile disk passes: counted, traced, and failed when planned."""

import threading
from collections import deque
from typing import Final

from topics.testing.hostile_faults import Fault, FaultPlan, Mutation, Operation, PowerCut

TRACED_CALLS_MAX: Final = 10_000


class HostileCalls:
    """Owns the lock of the disk, the count of its calls and the faults still to come.

    Once the process is gone, by a cut or a kill, no call passes any more.
    """

    def __init__(self, plan: FaultPlan) -> None:
        self.lock = threading.Lock()
        self.made = 0
        self.trace: deque[tuple[Mutation, str]] = deque(maxlen=TRACED_CALLS_MAX)
        self.gone = False
        self._armed: list[_ArmedFault] = []
        self.arm(plan)

    def arm(self, plan: FaultPlan) -> None:
        """Replace the faults to come, and count from here."""
        self._armed = [_ArmedFault(fault) for fault in plan.faults]

    def begin(self, operation: Mutation, path: str) -> Fault | None:
        """Count a call that changes the disk; return the fault that makes it a failure.

        The caller holds the lock. The hot path of every simulated run: no more than this.
        """
        if self.gone:
            raise PowerCut(f"{operation} of {path}: this process is gone")
        fault = self._strike(operation, path) if self._armed else None
        self.made += 1
        self.trace.append((operation, path))
        return fault

    def begin_or_fail(self, operation: Mutation, path: str) -> None:
        """Count a call that has no effect at all where it fails."""
        fault = self.begin(operation, path)
        if fault is not None and fault.written_bytes is None:
            raise fault.error_for(path)

    def look(self, operation: Operation, path: str) -> None:
        """Let a call pass that changes nothing."""
        if self.gone:
            raise PowerCut(f"{operation} of {path}: this process is gone")
        if self._armed:
            fault = self._strike(operation, path)
            if fault is not None:
                raise fault.error_for(path)

    def _strike(self, operation: Operation, path: str) -> Fault | None:
        due = [armed.fault for armed in self._armed if armed.is_due(operation, path)]
        for fault in due:
            if fault.error is None:
                self.gone = True
                raise fault.error_for(path)
        return due[0] if due else None


class _ArmedFault:
    """One fault with its own count of the calls it is for."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self._calls_seen = 0

    def is_due(self, operation: Operation, path: str) -> bool:
        if not self.fault.is_for(operation, path):
            return False
        call = self._calls_seen
        self._calls_seen += 1
        return call == self.fault.at_call or (self.fault.forever and call > self.fault.at_call)
