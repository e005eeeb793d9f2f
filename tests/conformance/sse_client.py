"""A reader of server-sent events, as small as the format."""

import base64
import contextlib
import json
import queue
import socket
import threading
from collections.abc import Iterator
from typing import NamedTuple, Self

import httpx
from tests.conformance.api import Reply

DEADLINE_S = 10.0
ACCEPT = {"Accept": "text/event-stream"}


class Event(NamedTuple):
    """One frame; a comment has the kind `:`, a `retry` line the kind `retry`."""

    kind: str
    data: str
    id: str | None = None

    @property
    def json(self) -> Reply:
        body: Reply = json.loads(self.data)
        return body

    @property
    def cursor(self) -> dict[str, int]:
        return decode_id(self.id or "")


def decode_id(text: str) -> dict[str, int]:
    """Return the map topic → seq inside an id."""
    assert "=" not in text
    found: dict[str, int] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return found


def encode_id(cursor: dict[str, int]) -> str:
    text = json.dumps(cursor, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def parse_events(lines: Iterator[str]) -> Iterator[Event]:
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            yield Event(":", line[1:].strip())
        elif line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            fields[name] = f"{fields[name]}\n{value}" if name in fields else value
        elif fields:
            if "retry" in fields:
                yield Event("retry", fields["retry"])
            if "data" in fields:
                yield Event(fields.get("event", "message"), fields["data"], fields.get("id"))
            fields = {}


class Stream:
    """An open stream; a thread reads it so that every wait has a deadline."""

    def __init__(
        self,
        client: httpx.Client,
        path: str,
        *,
        last_id: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        given = ACCEPT | (headers or {}) | ({"Last-Event-ID": last_id} if last_id else {})
        timeout = httpx.Timeout(DEADLINE_S, read=60.0)
        request = client.build_request("GET", path, headers=given, timeout=timeout)
        self.response = client.send(request, stream=True)
        self._events: queue.Queue[Event | None] = queue.Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._closing = False
        if self.response.status_code != 200:
            self.response.read()
        else:
            self._thread.start()

    def next(self, timeout_s: float = DEADLINE_S) -> Event:
        """Return the next frame; raise `queue.Empty` when none comes, `EOFError` at the end."""
        event = self._events.get(timeout=timeout_s)
        if event is None:
            raise EOFError
        return event

    def next_of(self, *kinds: str, timeout_s: float = DEADLINE_S) -> Event:
        """Skip to the next frame of one of these kinds."""
        while (event := self.next(timeout_s)).kind not in kinds:
            pass
        return event

    def records(self, count: int) -> list[Reply]:
        """Return that many records, from as many frames as it takes."""
        found: list[Reply] = []
        while len(found) < count:
            found += self.next_of("record").json["records"]
        return found

    def close(self) -> None:
        """End the connection, and with HTTP/2 every other stream on it."""
        self._closing = True
        network = self.response.extensions.get("network_stream")
        if self._thread.is_alive() and network is not None:
            with contextlib.suppress(OSError):  # the server may have been first
                network.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
            self._thread.join(DEADLINE_S)
        self.response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        try:
            for event in parse_events(self.response.iter_lines()):
                self._events.put(event)
        except (httpx.HTTPError, httpx.StreamError, OSError):
            pass
        except (RuntimeError, ValueError, AttributeError):
            if not self._closing:  # the other thread closed the response under our feet
                raise
        finally:
            self._events.put(None)
