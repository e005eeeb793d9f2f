"""The config of one topic: it travels on the wire and in the WAL."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

import msgspec
from msgspec import Meta, Struct

from topics.errors import RequestError, TopicExistsIncompatible
from topics.limits import TOPIC_NAME_PATTERN
from topics.model.explain import explain
from topics.model.whole_numbers import with_whole_numbers
from topics.nearest import unknown_field

Durability = Literal["ephemeral", "memory", "disk", "fsync"]
PRIORITY_MAX = 1000
LEASE_MS = (100, 86_400_000)
CLAIM_JITTER_MS = (0, 5_000)


_INT64 = 2**63
_AMOUNTS = (
    "ttl_ms",
    "cap_records",
    "cap_bytes",
    "idempotency_window_ms",
    "producer_expiry_ms",
    "max_deliveries",
)
Amount = Annotated[int, Meta(ge=0, le=_INT64 - 1)]
Clamped = Annotated[int, Meta(ge=-_INT64, le=_INT64 - 1, description="clamped to its range")]
TopicName = Annotated[str, Meta(extra_json_schema={"pattern": TOPIC_NAME_PATTERN})]
"""Checked by `check_topic_name`, which says what is wrong with a name."""

_C = TypeVar("_C", bound="TopicConfig")


class TopicConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Always whole and resolved: `durability` is the class, `durable` only its echo."""

    type: Literal["log", "queue"] = "log"
    ttl_ms: Amount = 0
    cap_records: Amount = 0
    cap_bytes: Amount = 0
    discard: Literal["old", "reject"] = "old"
    durability: Durability = "disk"
    durable: bool = False
    priority: Clamped | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: Amount = 120_000
    producer_expiry_ms: Amount = 604_800_000
    dedupe_node: bool = True
    lease_ms: Clamped = 30_000
    claim_jitter_ms: Clamped = 0
    max_deliveries: Amount = 0
    dead_letter: TopicName | None = None
    leases_durable: bool = False

    @classmethod
    def from_changes(cls, changes: Mapping[str, Any]) -> Self:
        return cls().merged(changes)

    def merged(self, changes: Mapping[str, Any]) -> Self:
        """Return this config with some fields changed.

        Raise RequestError where one cannot be used.
        """
        check_config_names(changes)
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        fields |= with_whole_numbers(dict(changes))
        if not isinstance(fields["durable"], bool):
            raise RequestError("topic config: durable must be true or false")
        if "durability" not in changes and "durable" in changes:
            fields["durability"] = "fsync" if changes["durable"] else "disk"
        fields["durable"] = fields["durability"] == "fsync"
        _check_amounts(fields)
        try:
            config = msgspec.convert(fields, type(self))
        except msgspec.ValidationError as error:
            raise explain(error, type(self), where="topic config: ") from None
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


def _check_amounts(fields: Mapping[str, Any]) -> None:
    """Say it in words: 0 is a value with a meaning of its own."""
    for name in _AMOUNTS:
        value = fields[name]
        if isinstance(value, int) and value < 0:
            raise RequestError(f"topic config: {name} must be 0 (off) or more")


def _checked(config: _C) -> _C:
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


def check_config_names(changes: Mapping[str, Any]) -> None:
    """Refuse a field that no config has; `partitions` stands beside it, where a topic has any."""
    known = TopicConfig.__struct_fields__
    for name in changes:
        if name not in known:
            raise unknown_field(name, (*known, "partitions"), where="topic config: ")
