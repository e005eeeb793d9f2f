"""One browser and one server a module; a module changes the server by naming KEYS."""

from collections.abc import Iterator

import httpx
import pytest
from tests.browser.chromium import Chromium, Page, find_chromium

from topics.testing.server_process import ServerProcess

BINARY = find_chromium()


@pytest.fixture(scope="module")
def console(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("console")
    keys = getattr(request.module, "KEYS", None)
    with ServerProcess(str(directory / "data"), keys=keys) as server:
        yield server


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest, console: ServerProcess) -> Iterator[httpx.Client]:
    """Speak with the first of the keys."""
    key = getattr(request.module, "KEYS", "").partition(",")[0].partition(":")[0]
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with httpx.Client(base_url=console.url, headers=headers, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if BINARY is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    profile = str(tmp_path_factory.mktemp("profile"))
    with Chromium(BINARY, profile) as chromium, chromium.page() as page:
        page.record()
        page.resize(1280, 860)
        yield page


@pytest.fixture
def tab(browser: Page) -> Iterator[Page]:
    """Hold the tab, which must have nothing to complain about when a test is over."""
    browser.forget()
    yield browser
    browser.evaluate("1")  # what it has to say until now
    assert browser.complaints == []
