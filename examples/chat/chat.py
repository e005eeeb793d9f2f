"""A chat whose messages are records of one topic.

    chat.py [--port 8000]

Serves the page and, on the same origin, the event streams of the log. The key stays here: a page
that listens gets a ticket, which opens one stream, once, and the stream passes through as it is.
"""

import argparse
import http.client
import json
import os
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

URL = os.environ.get("TOPICS_URL", "http://127.0.0.1:4000")
KEY = os.environ.get("TOPICS_TOKEN")
TOPIC = "chat"
PAGE = Path(__file__).with_name("chat.html")
MAX_BODY_BYTES = 10_000
STREAM_TIMEOUT_S = 60.0  # a stream says something every 15 s


def ask(method: str, path: str, body: object) -> dict[str, Any]:
    """Ask the log something, with our key."""
    connection = connect()
    headers = {"Content-Type": "application/json"} | (
        {"Authorization": f"Bearer {KEY}"} if KEY else {}
    )
    try:
        connection.request(method, path, json.dumps(body), headers)
        reply = connection.getresponse()
        answer: dict[str, Any] = json.load(reply)
    finally:
        connection.close()
    if reply.status >= HTTPStatus.BAD_REQUEST:
        raise OSError(answer["error"]["message"])
    return answer


def connect() -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(URL).netloc, timeout=STREAM_TIMEOUT_S)


def listen(body: dict[str, Any]) -> dict[str, str]:
    """Make a watch behind what the page has seen, and a ticket for its stream."""
    seen = {"topics": {TOPIC: {"from_seq": int(body["from_seq"])}}}
    watch = ask("POST", "/v0/watch", seen)["wid"]
    return {"stream": f"/v0/watch/{watch}?ticket={ask('POST', '/v0/tickets', {})['ticket']}"}


def say(body: dict[str, Any]) -> dict[str, int]:
    """Write a message; `id` is the page's, so that sending it again writes nothing twice."""
    record = {"data": {"name": str(body["name"]), "text": str(body["text"])}}
    write = {"records": [record], "idempotency_key": str(body["id"])}
    return {"seq": ask("POST", f"/v0/topics/{TOPIC}", write)["last_seq"]}


class Chat(BaseHTTPRequestHandler):
    """The page, what it asks for, and its stream."""

    def do_GET(self) -> None:
        if self.path.startswith("/v0/watch/"):
            self.pass_through()
        elif self.path == "/":
            self.answer(HTTPStatus.OK, "text/html; charset=utf-8", PAGE.read_bytes())
        else:
            self.answer(HTTPStatus.NOT_FOUND, "text/plain", b"")

    def do_POST(self) -> None:
        action = {"/listen": listen, "/say": say}.get(self.path)
        length = int(self.headers.get("Content-Length", 0))
        # The type keeps pages of other origins out: a browser asks first, and is not answered.
        is_json = self.headers.get("Content-Type") == "application/json"
        if action is None or length > MAX_BODY_BYTES or not is_json:
            return self.answer(HTTPStatus.BAD_REQUEST, "text/plain", b"")
        try:
            found = action(json.loads(self.rfile.read(length)))
        except (ValueError, KeyError, TypeError):
            return self.answer(HTTPStatus.BAD_REQUEST, "text/plain", b"")
        except (OSError, http.client.HTTPException):  # the log is away: the page asks again
            return self.answer(HTTPStatus.BAD_GATEWAY, "text/plain", b"")
        return self.answer(HTTPStatus.OK, "application/json", json.dumps(found).encode())

    def pass_through(self) -> None:
        """Hand on a stream as it comes; it is the ticket in its path that opens it."""
        log = connect()
        try:
            log.request("GET", self.path, headers={"Accept": "text/event-stream"})
            stream = log.getresponse()
            self.send_response(stream.status)
            self.send_header("Content-Type", stream.headers["Content-Type"])
            self.end_headers()
            while data := stream.read1(65_536):
                self.wfile.write(data)
        except (OSError, http.client.HTTPException):
            self.close_connection = True  # one of both is gone: the page comes back
        finally:
            log.close()

    def answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing: a path may hold a ticket."""


def main() -> None:
    parser = argparse.ArgumentParser(description="A chat.")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    ask("PUT", f"/v0/topics/{TOPIC}", {"cap_records": 1_000})
    server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Chat)
    server.daemon_threads = True
    print(f"chat on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
