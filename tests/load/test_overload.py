"""More than the server can do: it says so, loses nothing, and is itself again right after."""

import asyncio
import sys
import time
from collections import Counter, deque
from pathlib import Path

import httpx
import pytest

from topics.testing.server_process import ServerProcess

CONNECTIONS = 64
MEASURE_S = 3.0
OVERLOAD_S = 30.0
OVERLOAD = 1.2
TICK_S = 0.02
RECOVERY_S = 5.0
PAD = "x" * 150


def request(number: int) -> bytes:
    body = b'{"records":[{"data":{"n":%d,"pad":"%s"}}]}' % (number, PAD.encode())
    return (
        b"POST /v0/topics/t?return_seqs=false HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    )


class Load:
    """What was sent and what came back, over all connections."""

    def __init__(self) -> None:
        self.sent = 0
        self.acked: list[int] = []
        self.statuses: Counter[int] = Counter()
        self.is_closed_loop = True


class Pipe(asyncio.Protocol):
    """A connection with any number of requests under way; answers come in order."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._waiting: deque[int] = deque()
        self._buffer = b""
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        self.is_lost = True

    def send(self, count: int = 1) -> None:
        numbers = range(self._load.sent, self._load.sent + count)
        self._load.sent += count
        self._waiting.extend(numbers)
        self.transport.write(b"".join(map(request, numbers)))

    @property
    def is_idle(self) -> bool:
        return self.is_lost or not self._waiting

    def data_received(self, data: bytes) -> None:
        buffer, at = self._buffer + data, 0
        while (end := buffer.find(b"\r\n\r\n", at)) >= 0:
            head = buffer[at:end].lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            if len(buffer) < end + 4 + length:
                break
            at = end + 4 + length
            self._answered(int(head[9:12]))
        self._buffer = buffer[at:]

    def _answered(self, status: int) -> None:
        number = self._waiting.popleft()
        self._load.statuses[status] += 1
        if status in {200, 201}:
            self._load.acked.append(number)
        if self._load.is_closed_loop:
            self.send()


async def measure(server: ServerProcess) -> Load:
    load = Load()
    loop = asyncio.get_running_loop()
    pipes: list[Pipe] = []
    for _ in range(CONNECTIONS):
        _, pipe = await loop.create_connection(lambda: Pipe(load), "127.0.0.1", server.port)
        pipes.append(pipe)
        pipe.send()
    await asyncio.sleep(MEASURE_S)
    capacity = len(load.acked) / MEASURE_S
    load.is_closed_loop = False
    start_s = time.monotonic()
    due = 0.0
    while (elapsed_s := time.monotonic() - start_s) < OVERLOAD_S:
        count = int(elapsed_s * capacity * OVERLOAD - due)
        due += count
        for number, pipe in enumerate(pipes):
            share = count // CONNECTIONS + (number < count % CONNECTIONS)
            if share and not pipe.is_lost:
                pipe.send(share)
        await asyncio.sleep(TICK_S)
    await back_to_normal(server)
    deadline_s = time.monotonic() + 60
    while not all(pipe.is_idle for pipe in pipes):
        assert time.monotonic() < deadline_s, "an answer never came"
        await asyncio.sleep(0.05)
    for pipe in pipes:
        pipe.transport.abort()
    return load


PROBE = """
import http.client, statistics, sys, time

host, deadline_s = sys.argv[1], time.monotonic() + float(sys.argv[2])
connection = http.client.HTTPConnection(host, timeout=30)
body, headers = '{"records":[{"data":{"n":-1}}]}', {"Content-Type": "application/json"}
while True:
    latencies_s, statuses = [], []
    for _ in range(20):
        start_s = time.monotonic()
        connection.request("POST", "/v0/topics/after", body, headers)
        response = connection.getresponse()
        response.read()
        latencies_s.append(time.monotonic() - start_s)
        statuses.append(response.status)
    assert set(statuses) <= {200, 201, 429, 503}, statuses
    median_ms = statistics.median(latencies_s) * 1000
    if median_ms < 50 and statuses[-1] == 200:
        sys.exit(0)
    if time.monotonic() > deadline_s:
        sys.exit(f"still {median_ms:.0f} ms")
"""
"""In a process of its own: the one that makes the load is late itself."""


async def back_to_normal(server: ServerProcess) -> None:
    """Return when ordinary requests are quick again, which must be soon."""
    probe = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROBE,
        f"127.0.0.1:{server.port}",
        str(RECOVERY_S),
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await probe.communicate()
    assert probe.returncode == 0, said.decode()


def written(server: ServerProcess) -> Counter[int]:
    found: Counter[int] = Counter()
    with httpx.Client(base_url=server.url, timeout=30, trust_env=False) as client:
        cursor, caught_up = 0, False
        while not caught_up:
            body = {"from_seq": cursor, "limit": 1000}
            page = client.post("/v0/topics/t/diff", json=body).json()
            assert page["tombstone"] is None
            found.update(record["data"]["n"] for record in page["records"])
            cursor, caught_up = page["next_from_seq"], page["caught_up"]
    return found


@pytest.mark.slow
def test_too_much_is_refused_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    with ServerProcess(str(tmp_path / "data")) as server:
        load = asyncio.run(measure(server))
        found = written(server)
        server.kill9()
        server.restart()
        again = written(server)
    assert set(load.statuses) <= {200, 201, 429, 503}
    assert len(load.acked) > 1000
    assert set(load.acked) <= set(found)
    assert again == found
    assert max(found.values()) == 1
