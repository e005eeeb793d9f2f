"""The console of a server with keys: in, out, and no further than the key goes."""

import httpx
import pytest
from tests.browser.chromium import Page
from tests.browser.sights import append, click, keep_picture, text_of, violations

from topics.testing.server_process import ServerProcess

OWNER, READER = "owner-key-0123456789", "reader-key-0123456789"
KEYS = f"{OWNER},{READER}:r:seen."


@pytest.fixture(scope="module", autouse=True)
def topics_to_see(client: httpx.Client) -> None:
    for name in ("seen.a", "seen.b", "hidden"):
        append(client, name, 1)


def sign_in(tab: Page, console: ServerProcess, key: str, path: str = "/") -> None:
    tab.open(console.url + "/console/login")
    tab.open(console.url + path)
    tab.wait_for("!!document.querySelector('#key')")
    tab.evaluate("document.querySelector('#key').focus()")
    tab.type(key)
    tab.press("Enter")


def test_one_signs_in_sees_and_signs_out(tab: Page, console: ServerProcess) -> None:
    sign_in(tab, console, OWNER, "/console/topics/hidden")
    tab.wait_for("location.pathname === '/console/topics/hidden'")
    tab.wait_for("document.querySelectorAll('#tail .record').length === 1")
    (cookie,) = tab.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
    click(tab, "#tail .actions button")
    tab.wait_for("!!document.querySelector('dialog[open]')")
    click(tab, "dialog .primary")  # yes, send it again
    tab.wait_for("document.querySelectorAll('#tail .record').length === 2")
    assert not any(OWNER in url for url in tab.requested)
    click(tab, "form[action='/console/logout'] button")
    tab.wait_for("location.pathname === '/console/login'")
    assert tab.cookies() == []
    tab.open(console.url + "/console/queues")
    tab.wait_for("location.pathname === '/console/login'")
    assert OWNER not in console.said


def test_a_wrong_key_is_told_so(tab: Page, console: ServerProcess) -> None:
    sign_in(tab, console, "wrong-key")
    tab.wait_for("!!document.querySelector('[role=alert]')")
    assert text_of(tab, "[role=alert]") == "This key is not known here."
    assert tab.cookies() == []
    assert "wrong-key" not in tab.evaluate("document.documentElement.outerHTML")
    assert violations(tab) == []
    keep_picture(tab, "login-1280-light")
    assert "wrong-key" not in console.said
    tab.complaints.clear()  # the browser tells of the 401


def test_a_key_sees_in_the_console_what_it_sees_elsewhere(
    tab: Page, console: ServerProcess
) -> None:
    sign_in(tab, console, READER)
    tab.wait_for("document.querySelectorAll('#topics tbody tr').length === 2")
    assert "hidden" not in text_of(tab, "#topics")
    tab.open(console.url + "/console/topics/seen.a")
    tab.wait_for("document.querySelectorAll('#tail .record').length === 1")
    assert tab.evaluate("document.querySelectorAll('#tail button').length") == 0
    tab.open(console.url + "/console/topics/hidden")
    tab.wait_for("document.querySelector('h1').textContent === 'That did not work'")
    tab.complaints.clear()  # the browser tells of the 403


@pytest.mark.parametrize("headers", ["{}", "{'X-Topics-CSRF': 'guess'}"], ids=["none", "guessed"])
def test_without_the_token_of_the_page_nothing_is_written(
    tab: Page, console: ServerProcess, client: httpx.Client, headers: str
) -> None:
    sign_in(tab, console, OWNER)
    tab.wait_for("document.querySelector('#pulse')?.dataset.state === 'live'")
    status = tab.evaluate(
        "fetch('/v0/topics/forged', {method: 'POST', body: '{\"records\":[{\"data\":1}]}',"
        f" headers: {{'Content-Type': 'application/json', ...{headers}}}}}).then(r => r.status)"
    )
    assert status == 403
    assert client.get("/v0/topics/forged").status_code == 404
    tab.open("about:blank")
    tab.complaints.clear()  # the browser tells of the 403


def test_a_session_that_ends_leads_to_the_way_in(tab: Page, console: ServerProcess) -> None:
    sign_in(tab, console, OWNER, "/console/queues")
    tab.wait_for("document.querySelector('#pulse')?.dataset.state === 'live'")
    tab.forget()
    tab.wait_for(
        "location.pathname + location.search === '/console/login?next=%2Fconsole%2Fqueues'"
    )
    tab.evaluate("1")
    tab.complaints.clear()  # the browser tells of the 401
