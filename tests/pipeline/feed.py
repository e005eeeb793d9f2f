"""A topic of a real server: written, trimmed, dropped, and waited for."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from topics.closing import Closing

DEADLINE_S = 30.0
HANG_S = 600.0
"""For processes with a Spark of their own: a start that takes 10 s takes minutes on a busy machine.
It is there to end a hang, not to judge a speed."""


class Feed(Closing):
    """One topic, by HTTP."""

    def __init__(self, url: str, topic: str, *, token: str | None = None) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.url = url
        self.topic = topic
        self._http = httpx.Client(base_url=url, headers=headers, timeout=30.0)

    def close(self) -> None:
        self._http.close()

    def call(self, method: str, path: str, **request: Any) -> Any:  # noqa: ANN401 - handed to httpx
        reply = self._http.request(method, path, **request)
        assert reply.status_code < 300, reply.text
        return reply.json()

    def text(self, path: str) -> str:
        reply = self._http.get(path)
        assert reply.status_code < 300, reply.text
        return reply.text

    def create(self, **config: Any) -> None:  # noqa: ANN401 - any setting
        self.call("PUT", f"/v0/topics/{self.topic}", json=config)

    def append(self, records: Sequence[dict[str, Any]], *, topic: str | None = None) -> None:
        target = f"/v0/topics/{topic or self.topic}?return_seqs=false"
        self.call("POST", target, json={"records": list(records)})

    def number(self, count: int, *, start: int = 0, topic: str | None = None) -> None:
        """Write records that count: data, tag and node say their number."""
        records = [
            {"data": {"n": n, "text": f"é {n}"}, "tag": f"t{n % 10}", "node": "x", "meta": {"m": n}}
            for n in range(start, start + count)
        ]
        self.append(records, topic=topic)

    def drop(self) -> None:
        self.call("DELETE", f"/v0/topics/{self.topic}")

    def delete_tag(self, tag: str) -> None:
        self.call("POST", f"/v0/topics/{self.topic}/delete", json={"match": tag})

    def records(self, topic: str | None = None) -> list[dict[str, Any]]:
        """Read everything there is."""
        found: list[dict[str, Any]] = []
        at, caught_up = 0, False
        while not caught_up:
            body = {"from_seq": at, "limit": 1000, "include_tags": True}
            page = self.call("POST", f"/v0/topics/{topic or self.topic}/diff", json=body)
            found += page["records"]
            at, caught_up = page["next_from_seq"], page["caught_up"]
        return found

    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", f"/v0/topics/{self.topic}/segments")
        return found

    def sealed(self) -> list[dict[str, Any]]:
        return [s for s in self.manifest()["segments"] if s["sealed"]]

    def wait_for_sealed(self, count: int) -> None:
        wait_until(lambda: len(self.sealed()) >= count, f"{count} sealed segments")


def wait_until(holds: Callable[[], bool], what: str, *, deadline_s: float = DEADLINE_S) -> None:
    """Look until it holds; fail after the deadline."""
    deadline = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < deadline, f"there never were {what}"
        time.sleep(0.01)
