"""`EventSource` of a real browser: it follows, comes back by itself, and misses nothing."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.browser.chromium import Chromium, Page, find_chromium
from tests.browser.cuttable_proxy import CuttableProxy

from topics.testing.server_process import ServerProcess

BINARY = find_chromium()
KEY = "browser-key-0123456789"
pytestmark = pytest.mark.skipif(
    BINARY is None, reason="no chromium on this machine: apt-get install chromium"
)
FOLLOW = """
window.seen = []; window.opened = 0; window.caughtUp = 0;
window.source = new EventSource(%s);
source.onopen = () => { window.opened += 1; };
source.addEventListener("record", event => {
  for (const record of JSON.parse(event.data).records) seen.push(record["$seq"]);
});
source.addEventListener("caught-up", () => { window.caughtUp += 1; });
true
"""


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    assert BINARY is not None
    with Chromium(BINARY, str(tmp_path / "profile")) as browser, browser.page() as page:
        yield page


def append(client: httpx.Client, *numbers: int) -> None:
    body = {"records": [{"data": number} for number in numbers]}
    client.post("/v0/topics/t", json=body).raise_for_status()


def watch(client: httpx.Client) -> str:
    reply = client.post("/v0/watch", json={"topics": {"t": {"from_seq": 0}}}).raise_for_status()
    url: str = reply.json()["stream_url"]
    return url


def test_a_browser_whose_connection_is_cut_resumes(page: Page, tmp_path: Path) -> None:
    with (
        ServerProcess(str(tmp_path / "data")) as server,
        CuttableProxy(server.port) as proxy,
        httpx.Client(base_url=server.url, trust_env=False) as client,
    ):
        append(client, 1, 2, 3)
        page.open(f"{proxy.url}/docs")
        path = watch(client).removeprefix(server.url)
        page.evaluate(FOLLOW % json.dumps(path))
        page.wait_for("window.seen.length >= 3")
        proxy.cut()
        append(client, 4, 5)
        page.wait_for("window.seen.length >= 5 || source.readyState === EventSource.CLOSED")
        append(client, 6)
        page.wait_for("window.seen.length >= 6 || source.readyState === EventSource.CLOSED")
        assert page.evaluate("window.seen") == [1, 2, 3, 4, 5, 6]
        assert page.evaluate("window.opened") == 2


@pytest.mark.parametrize("crash", [True, False], ids=["kill -9", "stop"])
def test_a_browser_resumes_where_it_was(page: Page, tmp_path: Path, *, crash: bool) -> None:
    with (
        ServerProcess(str(tmp_path / "data")) as server,
        httpx.Client(base_url=server.url, trust_env=False) as client,
    ):
        append(client, 1, 2, 3)
        page.open(f"{server.url}/docs")
        page.evaluate(FOLLOW % json.dumps(watch(client)))
        page.wait_for("window.caughtUp")
        append(client, 4, 5)
        page.wait_for("window.seen.length >= 5")
        server.kill9() if crash else server.terminate()
        page.wait_for("source.readyState === EventSource.CONNECTING")
        server.restart()
        append(client, 6, 7)
        page.wait_for("window.seen.length >= 7 || source.readyState === EventSource.CLOSED")
        append(client, 8)
        page.wait_for("window.seen.length >= 8 || source.readyState === EventSource.CLOSED")
        assert page.evaluate("source.readyState") == 1
        assert page.evaluate("window.seen") == [1, 2, 3, 4, 5, 6, 7, 8]
        assert page.evaluate("window.opened") == 2


def test_a_ticket_lets_a_browser_in(page: Page, tmp_path: Path) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    with (
        ServerProcess(str(tmp_path / "data"), keys=KEY) as server,
        httpx.Client(base_url=server.url, headers=headers, trust_env=False) as client,
    ):
        append(client, 1, 2)
        url = watch(client)
        page.open(f"{server.url}/docs")
        page.evaluate(FOLLOW % json.dumps(url))
        page.wait_for("source.readyState === EventSource.CLOSED")
        ticket = client.post("/v0/tickets", json={}).raise_for_status().json()["ticket"]
        page.evaluate(FOLLOW % json.dumps(f"{url}?ticket={ticket}"))
        assert page.wait_for("window.seen.length >= 2 && window.seen") == [1, 2]
