"""A start takes its time: until the log is read, the server says so and how far it is."""

import json
import threading
import time
from contextlib import suppress
from typing import NamedTuple

import httpx
import pytest
from tests.conformance.api import Reply, ok, open_client, refused

from topics.testing.server_process import ServerProcess

SETTINGS = {
    "TOPICS_CHECKPOINT_MS": "3600000",
    "TOPICS_SNAPSHOT_MS": "3600000",
    "TOPICS_SNAPSHOT_WAL_BYTES": "10000000000",
}
BATCHES = 120
PATHS = ("/v0/ready", "/readyz", "/v0/topics", "/v0/health")


class Early(NamedTuple):
    """What an event stream got that was asked for before the log was read."""

    asked_s: float
    status: int
    seqs: list[int]


class Prober:
    """Asks a server that is just starting, and keeps every answer."""

    def __init__(self, url: str) -> None:
        self.answers: dict[str, list[httpx.Response]] = {path: [] for path in PATHS}
        self.refused_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask, args=(url,))
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _ask(self, url: str) -> None:
        with open_client(url) as client:
            while not self._stop.wait(0.001):
                for path in PATHS:
                    try:
                        self.answers[path].append(client.get(path))
                    except httpx.TransportError:
                        break
                    if self.answers[path][-1].status_code != 200:
                        self.refused_s = time.monotonic()


class Browser:
    """Comes back to its watch as soon as somebody listens, as `EventSource` does."""

    def __init__(self, url: str, path: str) -> None:
        self.early: Early | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, args=(url, path), daemon=True)
        self._thread.start()

    def wait(self) -> Early | None:
        self._thread.join(30)
        return self.early

    def stop(self) -> None:
        self._stop.set()

    def _follow(self, url: str, path: str) -> None:
        with open_client(url) as client:
            while self.early is None and not self._stop.wait(0.001):
                with suppress(httpx.TransportError):
                    self.early = self._ask(client, path)

    def _ask(self, client: httpx.Client, path: str) -> Early:
        asked_s = time.monotonic()
        headers = {"Accept": "text/event-stream"}
        with client.stream("GET", path, headers=headers, timeout=30) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: ") and "records" in line:
                    records = json.loads(line.removeprefix("data: "))["records"]
                    return Early(asked_s, answer.status_code, [r["$seq"] for r in records])
            return Early(asked_s, answer.status_code, [])


class Start(NamedTuple):
    """A start as its clients saw it."""

    prober: Prober
    early: Early | None


@pytest.fixture(scope="module")
def start(server: ServerProcess) -> Start:
    """Fill a log, kill the server, and ask it all through its next start."""
    with open_client(server.url) as client:
        client.put("/v0/topics/t", json={}).raise_for_status()
        watch = ok(client.post("/v0/watch", json={"topics": {"t": {"from_seq": 0}}}))
        body: Reply = {"records": [{"data": {"n": n, "pad": "x" * 50}} for n in range(10_000)]}
        for _ in range(BATCHES):
            client.post("/v0/topics/t?return_seqs=false", json=body).raise_for_status()
    server.kill9()
    prober, browser = Prober(server.url), Browser(server.url, watch["stream_url"])
    try:
        server.restart()
        return Start(prober, browser.wait())
    finally:
        prober.stop()
        browser.stop()


@pytest.fixture(scope="module")
def answers(start: Start) -> dict[str, list[httpx.Response]]:
    return start.prober.answers


def test_a_stream_waits_for_the_log_instead(start: Start) -> None:
    """A browser would take a 503 for the end, and never come back."""
    assert start.early is not None
    assert start.early.asked_s < start.prober.refused_s, "the log was read already"
    assert start.early.status == 200
    assert start.early.seqs[:3] == [1, 2, 3]


def test_readiness_is_refused_with_the_progress_until_the_log_is_read(
    answers: dict[str, list[httpx.Response]],
) -> None:
    for path in ("/v0/ready", "/readyz", "/v0/topics"):
        early = [answer for answer in answers[path] if answer.status_code != 200]
        assert early, f"{path} never said that it was not ready"
        progress = [refused(answer, 503, "not_ready")["replay_progress"] for answer in early]
        assert progress == sorted(progress)
        assert all(0 <= part <= 1 for part in progress)


def test_health_is_fine_all_the_while(answers: dict[str, list[httpx.Response]]) -> None:
    assert answers["/v0/health"]
    for answer in answers["/v0/health"]:
        assert ok(answer)["status"] == "ok"


def test_once_ready_it_stays_ready(answers: dict[str, list[httpx.Response]]) -> None:
    statuses = [answer.status_code for answer in answers["/v0/ready"]]
    assert statuses == sorted(statuses, reverse=True)


def test_everything_is_there_when_it_is_ready(
    server: ServerProcess,
    answers: dict[str, list[httpx.Response]],  # noqa: ARG001 - after the start
) -> None:
    with open_client(server.url) as client:
        assert ok(client.get("/v0/topics/t"))["head_seq"] == BATCHES * 10_000
