"""The body of a request that has nothing to say."""

from msgspec import Struct


class EmptyBody(Struct, frozen=True, forbid_unknown_fields=True):
    """An object without fields; where nothing has to be said, no body will do, too."""
