"""What the server asks of a connection, whatever protocol it speaks."""

from typing import Protocol

from topics.errors import TopicsError

STOPPING = "the server is stopping: try again soon"


class Connection(Protocol):
    """One socket, as the sweep of timeouts and the drain see it."""

    @property
    def peer(self) -> str:
        """Where it comes from."""

    @property
    def since_s(self) -> float:
        """When it became idle, or what it is sending now began."""

    @property
    def received_bytes(self) -> int:
        """How much of the body under way has come."""

    @property
    def is_idle(self) -> bool:
        """Nothing is asked that is not answered."""

    @property
    def is_at_rest(self) -> bool:
        """Idle, with no part of an answer left; a head cut short or a refused body is no work."""

    @property
    def is_stalled(self) -> bool:
        """All is answered, and the peer does not take the answers."""

    @property
    def is_reading_head(self) -> bool: ...

    @property
    def is_reading_body(self) -> bool: ...

    def notice(self, now_s: float) -> None:
        """Look how far the peer has come with the answers."""

    def end(self) -> None:
        """Close when everything written is sent."""

    def wind_up(self, reason: TopicsError) -> None:
        """End if nothing is under way; a request that is only half here is refused before."""

    def abort(self) -> None: ...

    def give_up(self, error: TopicsError | None) -> None:
        """End because of a timeout; say so if a request had begun."""
