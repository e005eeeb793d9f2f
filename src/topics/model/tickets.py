"""What someone gets who asks for a ticket."""

from msgspec import Struct

from topics.model.performance import Performance


class TicketReply(Struct, frozen=True, kw_only=True):
    """A word that opens one stream, once, as `?ticket=`."""

    ticket: str
    expires_ms: int
    performance: Performance
