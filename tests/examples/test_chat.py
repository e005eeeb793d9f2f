"""`examples/chat` in a real browser: two pages talk, and a crash of the server loses nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.browser.chromium import Chromium, Page, find_chromium
from tests.examples.program import Program

from topics.client import Topics
from topics.testing.forked_server import ForkedServer

BINARY = find_chromium()
KEY = "chat-key-0123456789"
pytestmark = [
    pytest.mark.skipif(
        BINARY is None, reason="no chromium on this machine: apt-get install chromium"
    ),
    pytest.mark.topics(keys=KEY),
]
SAY = """
find("name").value = "ada"; find("text").value = %r;
find("form").requestSubmit(); true
"""
SHOWN = "Array.from(document.querySelectorAll('li'), line => line.textContent)"
HOSTILE = "<img src=x onerror=window.harmed=1>"


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    assert BINARY is not None
    with Chromium(BINARY, str(tmp_path / "profile")) as browser, browser.page() as page:
        page.record()
        yield page


@pytest.fixture
def url(topics_server: ForkedServer) -> Iterator[str]:
    with Program("chat/chat.py", "--port", "0", url=topics_server.url, key=KEY) as chat:
        yield chat.expect(r"http://[\d.:]+")[0]


def test_what_is_said_is_shown_as_text(page: Page, url: str, topics_client: Topics) -> None:
    page.open(url)
    page.evaluate(SAY % HOSTILE)
    page.wait_for(f"{SHOWN}.length === 1")
    topics_client.append("chat", [{"data": {"name": "bob", "text": "hello"}}])
    page.wait_for(f"{SHOWN}.length === 2")
    assert page.evaluate(SHOWN) == [f"ada: {HOSTILE}", "bob: hello"]
    assert page.evaluate("window.harmed") is None
    page.open(url)
    page.wait_for(f"{SHOWN}.length === 2")
    assert page.complaints == []
    assert not any(KEY in asked for asked in page.requested)


def test_a_page_goes_on_where_it_was_when_the_server_is_killed(
    page: Page, url: str, topics_server: ForkedServer
) -> None:
    page.open(url)
    page.evaluate(SAY % "one")
    page.wait_for(f"{SHOWN}.length === 1")
    topics_server.kill9()
    page.wait_for("find('state').textContent === 'connecting'")
    page.evaluate(SAY % "two")
    topics_server.restart()
    page.wait_for(f"{SHOWN}.length >= 2")
    page.evaluate(SAY % "three")
    page.wait_for(f"{SHOWN}.length >= 3")
    assert page.evaluate(SHOWN) == ["ada: one", "ada: two", "ada: three"]


def test_a_page_tells_what_is_gone(page: Page, url: str, topics_client: Topics) -> None:
    topics_client.create("chat", cap_records=2)
    said = [{"data": {"name": "bob", "text": str(number)}} for number in range(5)]
    topics_client.append("chat", said)
    page.open(url)
    page.wait_for(f"{SHOWN}.length >= 3")
    assert page.evaluate(SHOWN) == ["3 older messages are gone", "bob: 3", "bob: 4"]
