"""A console of a full server: hundreds of topics, thousands of records, and still at hand."""

import httpx
import pytest
from tests.browser.chromium import Page
from tests.browser.sights import append, click, post, text_of, violations

from topics.testing.server_process import ServerProcess

TOPICS = 500
RECORDS = 10_000
ROWS = "document.querySelectorAll('%s tbody tr').length"


@pytest.fixture(scope="module", autouse=True)
def much(client: httpx.Client) -> None:
    for number in range(TOPICS):
        client.put(f"/v0/topics/many.{number:03}", json={}).raise_for_status()
    for group in range(3):
        join = {"member": "m", "topics": [f"many.00{group}"], "session_ms": 300_000}
        post(client, f"groups/many.g{group}/join", join)
    for _ in range(RECORDS // 1000):
        append(client, "many.000", *[{"text": "x" * 50, "n": n} for n in range(1000)], tag="t")


def search(tab: Page, text: str) -> None:
    tab.evaluate("document.querySelector('#filter').focus()")
    tab.type(text)


@pytest.mark.parametrize(
    ("path", "table"), [("/", "#topics"), ("/console/storage", "#stored")], ids=["list", "storage"]
)
def test_a_long_list_is_cut_and_the_filter_finds_the_rest(
    tab: Page, console: ServerProcess, path: str, table: str
) -> None:
    tab.open(console.url + path)
    tab.wait_for(f"{ROWS % table} === 200")
    assert text_of(tab, "#shown") == f"the first 200 of {TOPICS}"
    search(tab, "y.499")
    tab.wait_for(f"{ROWS % table} === 1")
    assert text_of(tab, f"{table} tbody a") == "many.499"
    assert text_of(tab, "#shown") == "1"
    assert violations(tab) == []


def test_groups_are_found_and_chosen(tab: Page, console: ServerProcess) -> None:
    tab.open(f"{console.url}/console/groups")
    tab.wait_for(f"{ROWS % '#groups'} === 3")
    search(tab, "g1")
    tab.wait_for(f"{ROWS % '#groups'} === 1")
    tab.wait_for("document.querySelector('#group-name').textContent.startsWith('many.g1')")
    search(tab, "-none")
    tab.wait_for(f"{ROWS % '#groups'} === 0 && document.querySelector('#group').hidden")
    assert not tab.evaluate("document.querySelector('#search').closest('[hidden]')")


def test_a_group_without_members_says_so(
    tab: Page, console: ServerProcess, client: httpx.Client
) -> None:
    tab.open(f"{console.url}/console/groups?group=many.g2")
    tab.wait_for(f"{ROWS % '#members'} === 1")
    post(client, "groups/many.g2/leave", {"member": "m"})
    tab.wait_for("!document.querySelector('#no-members').hidden")
    assert tab.evaluate("document.querySelector('#members').parentElement.hidden")


def test_a_long_topic_shows_its_end_and_any_record_by_its_seq(
    tab: Page, console: ServerProcess
) -> None:
    tab.open(f"{console.url}/console/topics/many.000")
    tab.wait_for("document.querySelectorAll('#tail .record').length === 20")
    assert tab.evaluate("document.querySelector('#tail .record').dataset.seq") == str(RECORDS)
    tab.evaluate("document.querySelector('#peek').focus()")
    tab.type("5000")
    tab.press("Enter")
    tab.wait_for("document.querySelector('#peeked .record')?.dataset.seq === '5000'")
    click(tab, "#peeked .actions button")
    tab.wait_for("!!document.querySelector('dialog[open]')")
    click(tab, "dialog .primary")
    tab.wait_for(f"document.querySelector('#tail .record').dataset.seq === '{RECORDS + 1}'")
