"""The pictures of README and guide: taken here, of the demo, so that they show what there is."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.browser import sights
from tests.browser.chromium import Page

from topics.testing.server_process import ServerProcess

ROOT = Path(__file__).parents[2]
HISTORY = 24 if sights.PICTURES else 2  # points of a line; one every five seconds
POINTS = f"$('[data-key=\"demo.orders\"] polyline')?.points.length >= {HISTORY}"
# Name → path, height, and what must be seen before the picture is taken.
PICTURES = {
    "console-overview": ("/", 720, f"{POINTS} && $('#rates canvas')"),
    "console-topic": ("/console/topics/demo.orders", 720, "$$('#tail .record') > 20"),
    "console-queues": ("/console/queues", 320, "$('[data-redrive=\"demo.mails.dead\"]')"),
    "console-groups": ("/console/groups", 720, "$$('#members tbody tr') === 2 && $('#lag canvas')"),
    "console-routers": ("/console/routers", 400, "$$('#graph rect') === 4 && $$('#graph g') === 3"),
    "console-latency": ("/console/latency", 720, "$('#write-bars tr') && $('#fsync canvas')"),
}
FIND = "const $ = s => document.querySelector(s), $$ = s => document.querySelectorAll(s).length;"


@pytest.fixture(scope="module", autouse=True)
def demo(console: ServerProcess) -> Iterator[None]:
    command = [sys.executable, "-m", "topics", "demo", "--url", console.url, "--seconds", "600"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    running = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    yield
    running.kill()
    running.wait()


@pytest.mark.parametrize("name", PICTURES)
def test_the_demo_makes_a_picture(tab: Page, console: ServerProcess, name: str) -> None:
    path, height, wanted = PICTURES[name]
    tab.resize(1100, height)
    tab.prefer("light")
    tab.hide_bars()
    if path.startswith("/console/topics/"):  # which is there as soon as the list shows it
        tab.open(console.url)
        tab.wait_for("!!document.querySelector('[data-key=\"demo.orders\"]')")
    tab.open(console.url + path)
    tab.wait_for(f"(() => {{ {FIND} return !!({wanted}); }})()", deadline_s=60 + 5 * HISTORY)
    sights.keep_picture(tab, name)


def test_every_picture_of_the_docs_is_one_of_these() -> None:
    kept = {file.stem for file in (ROOT / "docs/images").glob("*.png")}
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {
        name for page in pages for name in re.findall(r"images/([\w-]+)\.png", page.read_text())
    }
    assert kept == shown == set(PICTURES)
