"""What someone gets who asks for a ticket."""

from msgspec import Struct

from topics.model.performance import Performance


class Ticket(Struct, frozen=True, kw_only=True):
    """A word that opens one stream, once, as `?ticket=`."""

    ticket: str
    expires_ms: int

    def __repr__(self) -> str:
        return f"Ticket(expires_ms={self.expires_ms})"  # the word itself is a secret


class TicketReply(Ticket, frozen=True, kw_only=True):
    """The body of the answer to who asks for one."""

    performance: Performance
