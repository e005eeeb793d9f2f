"""HTTP/2 without TLS by hand, for what a polite client cannot send."""

import socket
import time
from typing import Self

import h2.config
import h2.connection
import h2.events
import h2.exceptions
from hpack import Encoder

DEADLINE_S = 10.0
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, HEADERS, RST_STREAM, PING, CONTINUATION, DATA = 4, 1, 3, 6, 9, 0
END_STREAM, END_HEADERS = 1, 4
Fields = list[tuple[str, str]]


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    size = len(payload).to_bytes(3, "big")
    return size + bytes([kind, flags]) + stream_id.to_bytes(4, "big") + payload


def fields(method: str, path: str, *more: tuple[str, str], authority: str = "localhost") -> Fields:
    pseudo = [(":method", method), (":path", path), (":scheme", "http"), (":authority", authority)]
    return [*pseudo, *more]


class H2Socket:
    """A connection of which every byte can be chosen; answers are read by the `h2` library."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        config = h2.config.H2Configuration(
            client_side=True, validate_outbound_headers=False, normalize_outbound_headers=False
        )
        self.h2 = h2.connection.H2Connection(config)
        self.h2.initiate_connection()
        self.flush()
        self._encoder = Encoder()
        self.statuses: dict[int, int] = {}
        self.ended: set[int] = set()
        self.resets: dict[int, int] = {}
        self.closed = False

    def flush(self) -> None:
        self.send(self.h2.data_to_send())

    def send(self, sent: bytes) -> None:
        """Send what the server takes; it may hang up on us."""
        try:
            self.socket.sendall(sent)
        except OSError:
            self.closed = True

    def request(self, given: Fields, body: bytes | None = None) -> int:
        """Send a request as the library would, unchecked; return its stream."""
        stream_id = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream_id, given, end_stream=body is None)
        if body is not None:
            self.h2.send_data(stream_id, body, end_stream=True)
        self.flush()
        return stream_id

    def headers_frame(self, stream_id: int, given: Fields, *, flags: int) -> bytes:
        return frame(HEADERS, flags, stream_id, self._encoder.encode(given))

    def receive(self, *, until_stream: int | None = None, deadline_s: float = DEADLINE_S) -> None:
        """Read until a stream has ended, the server hangs up, or the deadline."""
        end_s = time.monotonic() + deadline_s
        while not self.closed and until_stream not in self.ended:
            self.socket.settimeout(max(0.001, end_s - time.monotonic()))
            try:
                data = self.socket.recv(65_536)
            except TimeoutError:
                return
            except OSError:
                data = b""
            if not data:
                self.closed = True
                return
            self._hear(data)

    def _hear(self, data: bytes) -> None:
        try:
            events = self.h2.receive_data(data)
        except h2.exceptions.ProtocolError:
            return  # we broke the rules first; only the end of the connection matters
        for event in events:
            if isinstance(event, h2.events.ResponseReceived):
                status = dict(event.headers)[b":status"]
                self.statuses[event.stream_id] = int(status)
            elif isinstance(event, h2.events.StreamEnded):
                self.ended.add(event.stream_id)
            elif isinstance(event, h2.events.StreamReset):
                self.ended.add(event.stream_id)
                self.resets[event.stream_id] = int(event.error_code)
            elif isinstance(event, h2.events.DataReceived):
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        self.flush()

    def refused(self, stream_id: int) -> bool:
        """Say whether the request got a client error, a reset, or a closed connection."""
        status = self.statuses.get(stream_id)
        if status is not None:
            return 400 <= status < 500
        return self.closed or stream_id in self.resets

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
