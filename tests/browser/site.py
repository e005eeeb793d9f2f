"""`python -m tests.browser.site FOLDER`: a built site in a browser, which must not complain.

Every page is opened; the switch of colours works, and holds on the next page. Part of `make docs`.
"""

import functools
import http.server
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.browser.chromium import Chromium, Page, find_chromium

MODE = "document.documentElement.dataset.bsTheme"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


def main() -> None:
    folder = Path(sys.argv[1])
    binary = find_chromium()
    if binary is None:
        print("no chromium on this machine: the site was not looked at", file=sys.stderr)
        return
    with (
        tempfile.TemporaryDirectory() as profile,
        _served(folder) as url,
        Chromium(binary, profile) as browser,
        browser.page() as tab,
    ):
        tab.record()
        looked = check_pages(tab, url, folder)
        check_switch(tab, url)
    print(f"{looked} pages were opened in a browser, and the switch of colours works")


def check_pages(tab: Page, url: str, folder: Path) -> int:
    pages = sorted(page.relative_to(folder) for page in folder.rglob("*.html"))
    assert pages, f"no page in {folder}"
    for page in pages:
        tab.open(f"{url}/{page}")
        assert tab.complaints == [], f"{page}: {tab.complaints}"
    strangers = [asked for asked in tab.requested if not asked.startswith((url, "data:"))]
    assert strangers == [], "the site loads something from elsewhere"
    return len(pages)


def check_switch(tab: Page, url: str) -> None:
    tab.prefer("light")
    tab.open(f"{url}/index.html")
    light = tab.evaluate(BACKGROUND)
    assert tab.evaluate(MODE) == "light", "it begins as the system has it"
    tab.prefer("dark")
    tab.wait_for(f"{MODE} === 'dark'")
    tab.prefer("light")
    tab.wait_for(f"{MODE} === 'light'")
    tab.evaluate("document.querySelector('[data-bs-theme-value=dark]').click()")
    assert tab.evaluate(MODE) == "dark"
    assert tab.evaluate(BACKGROUND) != light
    tab.open(f"{url}/start/quickstart/index.html")
    assert tab.evaluate(MODE) == "dark", "what was chosen holds on the next page"
    tab.evaluate("document.querySelector('[data-bs-theme-value=light]').click()")
    assert tab.evaluate(BACKGROUND) == light
    tab.evaluate("1")  # what it has to say until now
    assert tab.complaints == []


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing of each request."""

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


if __name__ == "__main__":
    main()
