"""Routers: what copies records from one topic to another, and how far it has come.

The reference page is docs/reference/routers.md.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from topics.errors import RequestError
from topics.limits import check_topic_name
from topics.model.diff import parse_match
from topics.model.explain import explain
from topics.model.performance import Performance
from topics.model.topic_config import TopicName
from topics.nearest import unknown_field

Guarantee = Literal["at_least_once", "exactly_once"]
Filter = Annotated[str | tuple[str, str, str], Meta(title="Match")]
ROUTER_META_KEY = "_topics_router"
"""Under this key of `meta` an `exactly_once` router writes where a copy comes from."""


class RouterDefinition(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one router does: it travels on the wire and in the WAL."""

    source: TopicName
    dest: TopicName
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: Filter | None = None
    allow_cycle: bool = False
    guarantee: Guarantee = "at_least_once"

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Decode a JSON object; RequestError where a field cannot be used."""
        known = cls.__struct_fields__
        for name in fields:
            if name not in known:
                raise unknown_field(name, known, where="router: ")
        _check_filter(fields.get("filter"))
        try:
            definition = msgspec.convert(dict(fields), cls)
        except msgspec.ValidationError as error:
            raise explain(error, cls, where="router: ") from None
        check_topic_name(definition.source)
        check_topic_name(definition.dest)
        if definition.source == definition.dest:
            raise RequestError("router: source and dest are the same topic")
        return definition

    @property
    def match(self) -> tuple[str, str] | None:
        """Return (op, literal) of the filter."""
        return None if self.filter is None else parse_match(self.filter)

    def as_dict(self) -> dict[str, Any]:
        return msgspec.structs.asdict(self)


class RouterState(Struct, frozen=True, kw_only=True):
    """A router at one moment."""

    router: str
    definition: RouterDefinition
    forwarded_total: int
    """Copies that it made: exact while the process lives, and after a clean stop."""
    lag: int
    """Source records that it has not looked at yet."""


class ShownRouter(RouterDefinition, frozen=True, kw_only=True):
    """A router with its name and how far it has come."""

    router: str
    forwarded_total: int
    lag: int


class RouterReply(ShownRouter, frozen=True, kw_only=True):
    """The body of the answer to a look at one router."""

    performance: Performance


class RouterPutReply(RouterDefinition, frozen=True, kw_only=True):
    """The body of the answer to a create or an update."""

    router: str
    created: bool
    performance: Performance


class RouterDeleteReply(Struct, frozen=True, kw_only=True):
    """The body of the answer to the end of a router."""

    router: str
    deleted: bool
    performance: Performance


class RouterListReply(Struct, frozen=True, kw_only=True):
    """One page of a list; `next_cursor` is there while there are more."""

    routers: list[ShownRouter]
    next_cursor: str | UnsetType = UNSET
    performance: Performance


def _check_filter(value: object) -> None:
    """Refuse a bad filter in the words of `parse_match`, which says what a good one looks like."""
    if value is not None:
        try:
            parse_match(value)
        except RequestError as error:
            raise RequestError(f"router: filter: {error}") from None
