"""What one can do in the console, with a mouse or without."""

import httpx
import pytest
from tests.browser.chromium import Page
from tests.browser.sights import agree, append, click, make_queue, post, text_of, violations

from topics.testing.server_process import ServerProcess

REDRIVE = "Put {} back into the queues they come from, to be worked on again?"
FOCUSED = "document.activeElement.id || document.activeElement.textContent"


def test_the_list_of_topics_lives(tab: Page, console: ServerProcess, client: httpx.Client) -> None:
    append(client, "alive", 1, 2, 3)
    tab.open(console.url)
    count = "document.querySelector('[data-key=alive] td:nth-child(4)')?.textContent"
    tab.wait_for(f"{count} === '3'")
    append(client, "alive", 4)
    tab.wait_for(f"{count} === '4'")
    append(client, "born-later", 1)
    tab.wait_for("!!document.querySelector('[data-key=born-later]')")
    client.delete("/v0/topics/born-later").raise_for_status()
    tab.wait_for("!document.querySelector('[data-key=born-later]')")


def test_rates_are_seen_after_a_while(
    tab: Page, console: ServerProcess, client: httpx.Client
) -> None:
    append(client, "growing", *range(500))
    tab.open(console.url)
    tab.wait_for("!!document.querySelector('[data-key=growing] polyline')")
    tab.wait_for("!!document.querySelector('#rates canvas')")


def test_the_filter_finds_topics_by_a_part_of_their_name(
    tab: Page, console: ServerProcess, client: httpx.Client
) -> None:
    for name in ("needle.one", "needle.two", "hay"):
        append(client, name, 1)
    tab.open(console.url)
    tab.wait_for("!!document.querySelector('[data-key=hay]')")
    tab.evaluate("document.querySelector('#filter').focus()")
    tab.type("NEEDLE")
    tab.wait_for("document.querySelectorAll('#topics tbody tr').length === 2")
    assert text_of(tab, "#shown") == "2"
    tab.press("Enter")  # the form does not leave the page
    assert tab.evaluate("location.search") == ""


def test_dead_letters_go_back_to_their_queue(
    tab: Page, console: ServerProcess, client: httpx.Client
) -> None:
    make_queue(client, "mails", jobs=2, dead=3)
    tab.open(f"{console.url}/console/queues")
    tab.wait_for("!!document.querySelector('[data-redrive=\"mails.dead\"]')")
    before = client.get("/v0/topics/mails").json()["queue"]["ready"]
    click(tab, '[data-redrive="mails.dead"]')
    agree(tab, REDRIVE.format("3 dead letters of mails.dead"))
    tab.wait_for("document.querySelector('#outcome').textContent === '3 back from mails.dead.'")
    assert client.get("/v0/topics/mails").json()["queue"]["ready"] == before + 3
    assert client.get("/v0/topics/mails.dead").json()["count"] == 0
    tab.wait_for("!document.querySelector('[data-redrive=\"mails.dead\"]')")


def test_a_redrive_asks_first_also_with_the_keyboard(
    tab: Page, console: ServerProcess, client: httpx.Client
) -> None:
    make_queue(client, "asked", jobs=1, dead=2)
    letters = "/v0/topics/asked.dead"
    tab.open(f"{console.url}/console/queues")
    button = "document.querySelector('[data-redrive=\"asked.dead\"]')"
    tab.wait_for(f"!!{button}")
    is_open = "!!document.querySelector('dialog[open]')"
    for key in ("Escape", "Enter"):  # the focus begins where nothing happens
        tab.evaluate(f"{button}.focus()")
        tab.press("Enter")
        tab.wait_for(is_open)
        assert tab.evaluate(FOCUSED) == "Cancel"
        tab.press(key)
        tab.wait_for(f"!{is_open} && document.activeElement === {button}")
    assert client.get(letters).json()["count"] == 2
    tab.press("Enter")
    tab.wait_for(is_open)
    assert violations(tab) == []
    tab.press("Tab")
    assert tab.evaluate(FOCUSED) == "Redrive"
    tab.press("Enter")
    tab.wait_for("document.querySelector('#outcome').textContent === '2 back from asked.dead.'")
    assert client.get(letters).json()["count"] == 0


def test_a_record_is_not_sent_again_without_a_yes(
    tab: Page, console: ServerProcess, client: httpx.Client
) -> None:
    append(client, "once", 1)
    tab.open(f"{console.url}/console/topics/once")
    tab.wait_for("!!document.querySelector('#tail .actions button')")
    click(tab, "#tail .actions button")
    tab.wait_for("!!document.querySelector('dialog[open]')")
    click(tab, "dialog button")
    tab.wait_for("!document.querySelector('dialog')")
    assert text_of(tab, "#tail .actions") == "Send again"
    assert client.get("/v0/topics/once").json()["head_seq"] == 1


@pytest.mark.parametrize("path", ["/console", "/console/"])
def test_the_name_of_the_console_leads_to_it(tab: Page, console: ServerProcess, path: str) -> None:
    tab.open(console.url + path)
    assert tab.evaluate("location.pathname") == "/"
    tab.wait_for("document.querySelector('#pulse').dataset.state === 'live'")


def test_a_redrive_that_cannot_be_says_why(
    tab: Page, console: ServerProcess, client: httpx.Client
) -> None:
    make_queue(client, "lost", jobs=1, dead=0)
    config = {"type": "queue", "max_deliveries": 1, "dead_letter": "lost.dead"}
    client.put("/v0/topics/nowhere", json=config).raise_for_status()
    client.put("/v0/topics/lost.dead", json={}).raise_for_status()
    append(client, "nowhere", 1)
    for _ in range(2):  # the second claim finds it worn out
        post(client, "topics/nowhere/claim", {"node": "w"})
        post(client, "topics/nowhere/nack", {"node": "w", "seqs": [1]})
    assert post(client, "topics/lost.dead/diff", {"wait_ms": 10_000})["records"]
    client.delete("/v0/topics/nowhere").raise_for_status()
    tab.open(f"{console.url}/console/queues")
    tab.wait_for("!!document.querySelector('[data-redrive=\"lost.dead\"]')")
    click(tab, '[data-redrive="lost.dead"]')
    agree(tab, REDRIVE.format("1 dead letter of lost.dead"))
    tab.wait_for("document.querySelector('#outcome').textContent.includes('nowhere')")
    assert client.get("/v0/topics/lost.dead").json()["count"] == 1
    tab.complaints.clear()  # the browser tells of the 404


def test_everything_is_reached_with_the_keyboard(tab: Page, console: ServerProcess) -> None:
    tab.open(console.url)
    tab.wait_for("document.querySelector('#pulse').dataset.state === 'live'")
    tab.press("Tab")
    assert tab.evaluate(FOCUSED) == "Skip to the content"
    tab.press("Enter")
    tab.wait_for("location.hash === '#content'")
    tab.press("Tab")
    assert tab.evaluate(FOCUSED) == "filter"
    tab.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    tab.open(f"{console.url}/console/queues")
    order = []
    for _ in range(12):
        tab.press("Tab")
        order.append(tab.evaluate(FOCUSED))
    pages = ["Topics", "Queues", "Groups", "Routers", "Storage", "Latency", "Pipeline"]
    assert order[:11] == ["Skip to the content", "topics", *pages, "theme", "filter"]
    outline = tab.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


def test_a_link_keeps_the_focus_while_its_table_lives(
    tab: Page, console: ServerProcess, client: httpx.Client
) -> None:
    append(client, "focus", 1)
    tab.open(console.url)
    tab.wait_for("!!document.querySelector('[data-key=focus] a')")
    tab.evaluate("document.querySelector('[data-key=focus] a').focus()")
    append(client, "focus", 2)
    append(client, "a-row-before", 1)
    tab.wait_for("!!document.querySelector('[data-key=\"a-row-before\"]')")
    assert tab.evaluate("document.activeElement.textContent") == "focus"


def test_the_colours_that_were_chosen_stay(tab: Page, console: ServerProcess) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    tab.prefer("light")
    tab.open(console.url)
    light = tab.evaluate(background)
    tab.evaluate("document.querySelector('#theme').focus()")
    tab.press("Enter")
    dark = tab.wait_for(f"{background} !== {light!r} && {background}")
    assert tab.evaluate("document.querySelector('#theme').ariaPressed") == "true"
    tab.open(f"{console.url}/console/queues")
    assert tab.evaluate(background) == dark
    click(tab, "#theme")
    assert tab.wait_for(f"{background} === {light!r}")
    tab.evaluate("localStorage.clear()")
    tab.prefer("dark")
    tab.open(console.url)
    assert tab.evaluate(background) == dark
    tab.prefer("light")
