"""The config of one topic: it travels on the wire and in the WAL."""

from collections.abc import Mapping
from typing import Any, Literal, Self, TypeVar

import msgspec
from msgspec import Struct

from topics.config import nearest
from topics.errors import RequestError, TopicExistsIncompatible

Durability = Literal["ephemeral", "memory", "disk", "fsync"]
PRIORITY_MAX = 1000
LEASE_MS = (100, 86_400_000)
CLAIM_JITTER_MS = (0, 5_000)


_C = TypeVar("_C", bound="TopicConfig")


class TopicConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Always whole and resolved: `durability` is the class, `durable` only its echo."""

    type: Literal["log", "queue"] = "log"
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: Literal["old", "reject"] = "old"
    durability: Durability = "disk"
    durable: bool = False
    priority: int | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: int = 120_000
    dedupe_node: bool = True
    lease_ms: int = 30_000
    claim_jitter_ms: int = 0
    max_deliveries: int = 0
    dead_letter: str | None = None
    leases_durable: bool = False

    @classmethod
    def from_changes(cls, changes: Mapping[str, Any]) -> Self:
        return cls().merged(changes)

    def merged(self, changes: Mapping[str, Any]) -> Self:
        """Return this config with some fields changed.

        Raise RequestError where one cannot be used.
        """
        _check_names(changes)
        fields = {name: getattr(self, name) for name in self.__struct_fields__} | dict(changes)
        if "durability" not in changes and "durable" in changes:
            fields["durability"] = "fsync" if changes["durable"] else "disk"
        fields["durable"] = fields["durability"] == "fsync"
        try:
            config = msgspec.convert(fields, type(self))
        except msgspec.ValidationError as error:
            raise RequestError(f"topic config: {error}") from None
        return _checked(config)

    def check_same_type(self, changes: Mapping[str, Any], *, topic: str) -> None:
        wanted = changes.get("type", self.type)
        if wanted != self.type:
            raise TopicExistsIncompatible(
                f"topic {topic!r} is of type {self.type!r}, which cannot become {wanted!r}"
            )

    def as_dict(self) -> dict[str, Any]:
        return msgspec.structs.asdict(self)

    @property
    def persists(self) -> bool:
        return self.durability != "ephemeral"


def _checked(config: _C) -> _C:
    for name in (
        "ttl_ms",
        "cap_records",
        "cap_bytes",
        "idempotency_window_ms",
        "max_deliveries",
    ):
        if getattr(config, name) < 0:
            raise RequestError(f"topic config: {name} must be 0 (off) or more")
    priority = config.priority
    if priority is not None:
        priority = _clamped(priority, (-PRIORITY_MAX, PRIORITY_MAX))
    return msgspec.structs.replace(
        config,
        priority=priority,
        lease_ms=_clamped(config.lease_ms, LEASE_MS),
        claim_jitter_ms=_clamped(config.claim_jitter_ms, CLAIM_JITTER_MS),
    )


def _clamped(value: int, bounds: tuple[int, int]) -> int:
    return max(bounds[0], min(value, bounds[1]))


def _check_names(changes: Mapping[str, Any]) -> None:
    known = TopicConfig.__struct_fields__
    for name in changes:
        if name not in known:
            raise RequestError(f"topic config: unknown field {name!r}{nearest(name, known)}")
