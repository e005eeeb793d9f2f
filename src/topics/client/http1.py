"""One HTTP/1.1 connection without its socket: requests to bytes, bytes to answers.

h11 keeps the rules of the protocol; who sends and receives is up to the caller.
"""

import h11

from topics.client.request import Request, Response
from topics.errors import Unreachable


class Wire:
    """The client's end of one connection: one request at a time."""

    def __init__(self, headers: list[tuple[str, str]], *, prefix: str) -> None:
        self._headers = headers
        self._prefix = prefix
        self._connection = h11.Connection(h11.CLIENT)
        self._status = 0
        self._content_type = b""
        self._retry_after_s: float | None = None
        self._body: list[bytes] = []

    def encode(self, request: Request) -> bytes:
        """Return the bytes of a request; the connection must be `reusable` or new."""
        headers = [*self._headers, ("Accept", request.accept)]
        if request.last_event_id is not None:
            headers.append(("Last-Event-ID", request.last_event_id))
        if request.body is not None:
            headers.append(("Content-Type", "application/json"))
            headers.append(("Content-Length", str(len(request.body))))
        event = h11.Request(
            method=request.method, target=self._prefix + request.path, headers=headers
        )
        head = self._connection.send(event)
        body = self._connection.send(h11.Data(data=request.body)) if request.body else b""
        end = self._connection.send(h11.EndOfMessage())
        assert head is not None
        assert body is not None
        assert end is not None
        return head + body + end

    def receive(self, data: bytes) -> Response | None:
        """Take bytes, none at the end of the stream; return the answer when it is whole."""
        try:
            self._connection.receive_data(data)
            return self._next()
        except h11.RemoteProtocolError as error:
            reason = "the connection was lost" if not data else f"not HTTP: {error}"
            raise Unreachable(f"no answer from the server: {reason}", sent=True) from error

    @property
    def is_stream(self) -> bool:
        """Tell whether the head of an answer has come that is a stream of events."""
        return 200 <= self._status < 300 and self._content_type.startswith(b"text/event-stream")

    def drain(self) -> bytes:
        """Take what has come of the body: of a stream, which is never whole."""
        body, self._body = b"".join(self._body), []
        return body

    @property
    def reusable(self) -> bool:
        """Tell whether another request may follow."""
        return self._connection.our_state is h11.IDLE

    def _next(self) -> Response | None:
        while True:
            event = self._connection.next_event()
            if event is h11.NEED_DATA or event is h11.PAUSED:
                return None
            if isinstance(event, h11.Response):
                self._status = event.status_code
                self._retry_after_s = _retry_after_s(event)
                self._content_type = _header(event, b"content-type") or b""
            elif isinstance(event, h11.Data):
                self._body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                return self._finish()
            elif isinstance(event, h11.ConnectionClosed):
                raise Unreachable("the server closed the connection without an answer", sent=True)

    def _finish(self) -> Response:
        body = self.drain()
        if self._connection.our_state is h11.DONE and self._connection.their_state is h11.DONE:
            self._connection.start_next_cycle()
        return Response(status=self._status, retry_after_s=self._retry_after_s, body=body)


def _retry_after_s(event: h11.Response) -> float | None:
    value = _header(event, b"retry-after")
    return float(value) if value is not None and value.isdigit() else None


def _header(event: h11.Response, wanted: bytes) -> bytes | None:
    for name, value in event.headers:
        if name == wanted:
            return bytes(value)
    return None
