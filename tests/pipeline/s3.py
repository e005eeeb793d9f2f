"""A bucket of S3 in this process: the files of a directory, to be listed and read."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "bucket"


@contextmanager
def serving_bucket(directory: Path) -> Iterator[str]:
    """Serve a directory as a bucket; return the URI of the bucket and where it is."""

    class Handler(_Bucket):
        root = directory

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    port = server.server_address[1]
    try:
        yield f"s3://{BUCKET}?endpoint_override=127.0.0.1:{port}&scheme=http&region=here"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Bucket(BaseHTTPRequestHandler):
    root: Path

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it has there
        """Say nothing."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(asked.query).items()}
        _, _, key = unquote(asked.path).lstrip("/").partition("/")
        file = self.root / key
        if (key or query.get("prefix", "")).startswith("forbidden"):
            self._answer(403, b"")
        elif "list-type" in query:
            self._answer(200, self._listing(query.get("prefix", "")))
        elif key and file.is_file():
            self._send_range(file.read_bytes())
        else:
            self._answer(404 if key else 200, b"")

    def _send_range(self, content: bytes) -> None:
        given = self.headers.get("Range", "").removeprefix("bytes=")
        if not given:
            self._answer(200, content)
            return
        first, _, last = given.partition("-")
        stop = int(last) + 1 if last else len(content)
        told = f"bytes {first}-{min(stop, len(content)) - 1}/{len(content)}"
        self._answer(206, content[int(first) : stop], ("Content-Range", told))

    def _answer(self, status: int, content: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(content)))):
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def _listing(self, prefix: str) -> bytes:
        """List what is directly below a prefix, as with the delimiter `/`."""
        below = self.root / prefix
        children = sorted(below.iterdir()) if below.is_dir() else []
        files = "".join(
            f"<Contents><Key>{escape(prefix + child.name)}</Key><Size>{child.stat().st_size}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for child in children
            if child.is_file()
        )
        folders = "".join(
            f"<CommonPrefixes><Prefix>{escape(prefix + child.name)}/</Prefix></CommonPrefixes>"
            for child in children
            if child.is_dir()
        )
        count = len(children)
        return (
            '<?xml version="1.0"?><ListBucketResult>'
            f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{count}</KeyCount>"
            f"<IsTruncated>false</IsTruncated>{files}{folders}</ListBucketResult>"
        ).encode()
