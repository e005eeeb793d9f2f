"""Every page of the console: shows what is there, at any size and in any colours, to anyone."""

import httpx
import pytest
from tests.browser.chromium import Page
from tests.browser.sights import keep_picture, make_sights, violations

from topics.testing.server_process import ServerProcess

# Path → what must come to be true on it; `$` finds one element, `$$` counts.
PAGES = {
    "/": "$('#topics tbody').textContent.includes('orders') && $('#rates canvas')",
    "/console/topics/orders": "$$('#tail .record') === 5"
    " && $('#state').textContent.includes('Newest seq5')",
    "/console/queues": "$('#queues tbody tr td:nth-child(6)').textContent === '2'",
    "/console/groups": "$('#partitions tbody tr td:nth-child(6)').textContent === '3'"
    " && $('#groups tbody').textContent.includes('billing') && $('#lag canvas')"
    " && $$('#members tbody tr') === 2 && $('#members').textContent.includes('parcels 0\\u20133')"
    " && $('#members').textContent.includes('<img') && !$('#members img')",
    "/console/routers": "$$('#graph rect') === 3 && $$('#graph .edge') === 2",
    "/console/storage": "$('#stored tbody').textContent.includes('orders') && $('#map span')",
    "/console/latency": "$('#write-bars tbody tr') && $('#write canvas')",
    "/console/pipeline": "$('#runs [data-key] td:nth-child(5)').textContent === '900'"
    " && $('#runs [data-key] td:nth-child(6)').textContent === '100' && $$('#runs tbody tr') === 1"
    " && $('#tables tbody').textContent.includes('orders1,400') && $('#rows canvas')",
    "/console/topics/none": "$('h1').textContent === 'That did not work'",
}
FIND = "const $ = s => document.querySelector(s), $$ = s => document.querySelectorAll(s).length;"


@pytest.fixture(scope="module", autouse=True)
def sights(client: httpx.Client) -> None:
    make_sights(client)


def see(tab: Page, console: ServerProcess, path: str) -> None:
    tab.open(console.url + path)
    tab.wait_for(f"(() => {{ {FIND} return !!({PAGES[path]}); }})()")


@pytest.mark.parametrize("path", PAGES)
def test_a_page_shows_what_is_there(tab: Page, console: ServerProcess, path: str) -> None:
    see(tab, console, path)
    assert [url for url in tab.requested if not url.startswith((console.url, "data:"))] == []
    if path.endswith("none"):
        tab.complaints.clear()  # the browser tells of the 404


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")]
)
def test_a_page_is_for_everyone(
    tab: Page, console: ServerProcess, path: str, width: int, scheme: str
) -> None:
    tab.resize(width, 860)
    tab.prefer(scheme)
    see(tab, console, path)
    assert violations(tab) == []
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    keep_picture(tab, f"{path.strip('/').replace('/', '-') or 'overview'}-{width}-{scheme}")
    if path.endswith("none"):
        tab.complaints.clear()  # the browser tells of the 404
    tab.resize(1280, 860)


def test_every_page_is_reached_from_every_other(tab: Page, console: ServerProcess) -> None:
    tab.open(console.url)
    links = tab.evaluate("[...document.querySelectorAll('nav a')].map(link => link.pathname)")
    assert set(links) == {path for path in PAGES if "/topics/" not in path}


def test_a_server_that_goes_away_is_noticed_and_comes_back(
    tab: Page, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with ServerProcess(str(tmp_path_factory.mktemp("mortal"))) as server:
        tab.open(server.url)
        tab.wait_for("document.querySelector('#pulse').dataset.state === 'live'")
        server.terminate()
        tab.wait_for("document.querySelector('#pulse').dataset.state === 'lost'")
        assert tab.evaluate("!document.querySelector('#problem').hidden")
        server.start()
        tab.wait_for("document.querySelector('#pulse').dataset.state === 'live'")
        assert tab.evaluate("document.querySelector('#problem').hidden")
        tab.open("about:blank")
    tab.complaints.clear()  # the browser tells of refused connections
