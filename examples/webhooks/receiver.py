"""A receiver of webhooks with bad days: it prints what it gets.

    receiver.py [--port 9000] [--refuse TEXT]

`/flaky` refuses every event at first and takes it when it comes again; any path refuses what
contains TEXT, always.
"""

import argparse
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Receiver(BaseHTTPRequestHandler):
    """Answers 204, or 503 on a bad day."""

    refused_text: bytes = b""
    seen: set[str]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.judge(body)
        print(f"{self.path} {status.value} {body.decode()}", flush=True)
        self.send_response(status)
        self.end_headers()

    def judge(self, body: bytes) -> HTTPStatus:
        event_id = self.path + self.headers["X-Event-Id"]
        is_new = event_id not in self.seen
        self.seen.add(event_id)
        is_hopeless = bool(self.refused_text) and self.refused_text in body
        if is_hopeless or (self.path == "/flaky" and is_new):
            return HTTPStatus.SERVICE_UNAVAILABLE
        return HTTPStatus.NO_CONTENT

    def log_message(self, *_: object) -> None:
        """Say nothing more."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Receive webhooks.")
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--refuse", default="", metavar="TEXT")
    arguments = parser.parse_args()
    Receiver.refused_text = arguments.refuse.encode()
    Receiver.seen = set()
    server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Receiver)
    print(f"receiving on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
