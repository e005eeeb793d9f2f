"""Small blocking clients that set up and check what the load driver then drives."""

import http.client
import json
import socket
import time
from typing import Any

from benchmarks.server import wire
from benchmarks.server.errors import CannotMeasure

TIMEOUT_S = 30.0


def call(port: int, method: str, path: str, content: Any = None) -> Any:  # noqa: ANN401 - any JSON
    """Make one HTTP request and return its JSON."""
    body = content if isinstance(content, bytes) else json.dumps(content or {}).encode()
    text = request(port, method, path, body)
    return json.loads(text)


def request(port: int, method: str, path: str, body: bytes = b"") -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    headers = {"Content-Type": "application/json"} if body else {}
    try:
        connection.request(method, path, body or None, headers)
        reply = connection.getresponse()
        text = reply.read()
    except (OSError, http.client.HTTPException) as error:
        raise CannotMeasure(f"{method} {path}: {error}") from error
    finally:
        connection.close()
    if reply.status not in (200, 201, 204):
        raise CannotMeasure(f"{method} {path}: {reply.status} {text[:200].decode()}")
    return text


def wait_until_ready(port: int) -> None:
    """Wait until `topics` has replayed its log: it listens before that."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            request(port, "GET", "/v0/ready")
        except CannotMeasure:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def redis_call(port: int, *words: str) -> str:
    """Send one command that is answered by one line, and return the line."""
    return redis_pipeline(port, wire.resp(*(word.encode() for word in words)), replies=1)


def redis_pipeline(port: int, commands: bytes, *, replies: int) -> str:
    """Send commands whose replies are one line (or a short string) each; return the last line."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        connection.sendall(commands)
        lines = connection.makefile("rb")
        last = ""
        for _ in range(replies):
            last = lines.readline().decode().strip()
            if last.startswith("-"):
                raise CannotMeasure(f"Redis: {last}")
            if last.startswith("$"):
                last = lines.readline().decode().strip()
    return last


def nats_call(port: int, subject: str, content: Any) -> Any:  # noqa: ANN401 - any JSON
    """Make one request of the JetStream API and return its JSON."""
    body = json.dumps(content).encode()
    hello = wire.NATS_HELLO.replace(b"@@@@", b"ctrl")
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        connection.sendall(hello + b"PUB %s _INBOX.ctrl.1 " % subject.encode())
        connection.sendall(b"%d\r\n%s\r\n" % (len(body), body))
        lines = connection.makefile("rb")
        for line in lines:
            if line.startswith(b"MSG "):
                answer = json.loads(lines.read(int(line.split()[-1])))
                break
            if line.startswith(b"-"):
                raise CannotMeasure(f"NATS: {line.decode().strip()}")
        else:
            raise CannotMeasure("NATS closed the connection")
    if "error" in answer:
        raise CannotMeasure(f"NATS: {answer['error']}")
    return answer
