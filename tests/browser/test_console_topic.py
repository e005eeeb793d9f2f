"""The page of a topic: what is written is seen at once, as text, and can be sent again."""

import json

import httpx
import pytest
from tests.browser.chromium import Page
from tests.browser.sights import HOSTILE, agree, append, click, text_of

from topics.testing.server_process import ServerProcess

ITEMS = "[...document.querySelectorAll('#tail .record')]"
SEEN = f"{ITEMS}.map(item => item.dataset.seq)"


def open_topic(tab: Page, console: ServerProcess, topic: str) -> None:
    tab.open(f"{console.url}/console/topics/{topic}")
    tab.wait_for("document.querySelector('#tail-state').textContent === 'live'")


def wait_for_seqs(tab: Page, *seqs: int) -> None:
    """Wait until exactly these are seen, newest first."""
    wanted = json.dumps([str(seq) for seq in seqs])
    tab.wait_for(f"JSON.stringify({SEEN}) === JSON.stringify({wanted})")


def test_records_are_seen_as_they_are_written(
    tab: Page, console: ServerProcess, client: httpx.Client
) -> None:
    append(client, "live", "first")
    open_topic(tab, console, "live")
    wait_for_seqs(tab, 1)
    append(client, "live", {"a": {"b": [1, None, True]}}, tag="t", node="n")
    wait_for_seqs(tab, 2, 1)
    assert "{ a: {…} }" in text_of(tab, "#tail .record")
    click(tab, "#tail .record summary")
    tab.wait_for("document.querySelectorAll('#tail .record:first-child summary').length === 2")
    tab.wait_for("document.querySelector('#state').textContent.includes('Newest seq2')")


def test_a_hostile_payload_is_text(tab: Page, console: ServerProcess, client: httpx.Client) -> None:
    append(client, "hostile", HOSTILE, {HOSTILE: [HOSTILE], "__proto__": {"x": 1}}, tag=HOSTILE)
    append(client, "hostile", 1, node="<b>n</b>", meta={HOSTILE: HOSTILE})
    open_topic(tab, console, "hostile")
    wait_for_seqs(tab, 3, 2, 1)
    tab.evaluate("document.querySelectorAll('#tail details').forEach(one => { one.open = true; })")
    tab.wait_for("document.querySelectorAll('#tail ul').length >= 2")
    assert tab.evaluate("window.harmed") is None
    assert (
        tab.evaluate("document.querySelectorAll('#tail img, #tail script, #tail b b').length") == 0
    )
    assert HOSTILE in text_of(tab, "#tail .record:last-child .badge")
    assert "onerror" in text_of(tab, "#tail .record:last-child .json-string")


def test_numbers_keep_their_digits(tab: Page, console: ServerProcess, client: httpx.Client) -> None:
    body = b'{"records":[{"data":[12345678901234567890, 1.10, {"a":1,"a":2}]}]}'
    client.post(
        "/v0/topics/exact", content=body, headers={"Content-Type": "application/json"}
    ).raise_for_status()
    open_topic(tab, console, "exact")
    wait_for_seqs(tab, 1)
    assert "12345678901234567890" in text_of(tab, "#tail .record")
    click(tab, "#tail .actions button")
    agree(tab, "Append what record 1 of exact holds once more, as a new record?")
    wait_for_seqs(tab, 2, 1)
    assert text_of(tab, "#tail .record:last-child .actions") == "Sent as 2"
    page = client.post("/v0/topics/exact/diff", json={"from_seq": 1}).text
    assert '[12345678901234567890, 1.10, {"a":1,"a":2}]' in page


def test_a_record_is_sent_again_with_all_it_has(
    tab: Page, console: ServerProcess, client: httpx.Client
) -> None:
    append(client, "again", {"x": 1}, tag="t", node="n", meta={"k": "v"})
    open_topic(tab, console, "again")
    wait_for_seqs(tab, 1)
    click(tab, "#tail .actions button")
    agree(tab, "Append what record 1 of again holds once more, as a new record?")
    wait_for_seqs(tab, 2, 1)
    first, second = client.post("/v0/topics/again/diff", json={"include_tags": True}).json()[
        "records"
    ]
    assert {**first, "$seq": 2, "$ts": second["$ts"]} == second


@pytest.mark.parametrize(
    ("tag", "seqs"), [("a:1", [2]), ("a:*", [4, 2]), ("none", []), ("", [4, 3, 2, 1])]
)
def test_a_tag_filters_the_tail(
    tab: Page, console: ServerProcess, client: httpx.Client, tag: str, seqs: list[int]
) -> None:
    topic = f"tags-{len(tag)}{len(seqs)}"
    for name in ("b", "a:1", "c", "a:2"):
        append(client, topic, name, tag=name)
    open_topic(tab, console, topic)
    wait_for_seqs(tab, 4, 3, 2, 1)
    tab.evaluate("document.querySelector('#tag').focus()")
    tab.type(tag)
    tab.press("Enter")
    wait_for_seqs(tab, *seqs)


def test_a_paused_tail_says_what_waits_and_goes_on(
    tab: Page, console: ServerProcess, client: httpx.Client
) -> None:
    append(client, "paused", 1)
    open_topic(tab, console, "paused")
    wait_for_seqs(tab, 1)
    click(tab, "#pause")
    append(client, "paused", 2, 3)
    tab.wait_for("document.querySelector('#tail-state').textContent === 'paused, 2 new'")
    wait_for_seqs(tab, 1)
    click(tab, "#pause")
    wait_for_seqs(tab, 3, 2, 1)


def test_a_filter_of_a_paused_tail_sifts_what_is_there(
    tab: Page, console: ServerProcess, client: httpx.Client
) -> None:
    for tag in ("a:1", "b", "a:2", "b"):
        append(client, "sifted", tag, tag=tag)
    append(client, "sifted", "no tag")
    open_topic(tab, console, "sifted")
    wait_for_seqs(tab, 5, 4, 3, 2, 1)
    click(tab, "#pause")
    state = "document.querySelector('#tail-state').textContent"
    visible = f"{ITEMS}.filter(item => item.checkVisibility()).map(item => item.dataset.seq)"
    for tag, seqs, said in (
        ("a:*", ["3", "1"], "paused, 2 of 5 shown"),
        ("b", ["4", "2"], "paused, 2 of 5 shown"),
        ("none", [], "paused, 0 of 5 shown"),
        ("", ["5", "4", "3", "2", "1"], "paused"),
        ("a:*", ["3", "1"], "paused, 2 of 5 shown"),
    ):
        tab.evaluate("document.querySelector('#tag').value = ''")
        tab.evaluate("document.querySelector('#tag').focus()")
        tab.type(tag)
        tab.press("Enter")
        tab.wait_for(f"{state} === {said!r}")
        assert tab.evaluate(visible) == seqs
    append(client, "sifted", "b", tag="b")
    append(client, "sifted", "a", tag="a:3")
    tab.wait_for(f"{state} === 'paused, 2 of 5 shown, 1 new'")
    click(tab, "#pause")
    wait_for_seqs(tab, 7, 3, 1)


def test_a_tail_goes_on_when_the_server_is_back(
    tab: Page, tmp_path_factory: pytest.TempPathFactory
) -> None:
    state = "document.querySelector('#tail-state').textContent"
    with (
        ServerProcess(str(tmp_path_factory.mktemp("mortal"))) as server,
        httpx.Client(base_url=server.url, trust_env=False) as client,
    ):
        append(client, "mortal", 1, 2)
        open_topic(tab, server, "mortal")
        wait_for_seqs(tab, 2, 1)
        server.kill9()
        tab.wait_for(f"{state} === 'reconnecting'")
        click(tab, "#pause")
        assert tab.evaluate(state) == "paused (reconnecting)"
        click(tab, "#pause")
        assert tab.evaluate(state) == "reconnecting"
        tab.wait_for("document.querySelector('#problem').textContent.includes('does not answer')")
        server.restart()
        append(client, "mortal", 3)
        wait_for_seqs(tab, 3, 2, 1)
        tab.wait_for(f"{state} === 'live'")
        tab.open("about:blank")
    tab.complaints.clear()  # the browser tells of refused connections


def test_the_tail_is_bounded(tab: Page, console: ServerProcess, client: httpx.Client) -> None:
    append(client, "many", *range(50))
    open_topic(tab, console, "many")
    tab.wait_for(f"{SEEN}.length === 20")
    append(client, "many", *range(1000))
    tab.wait_for(f"{SEEN}[0] === '1050'")
    assert tab.evaluate(f"{SEEN}.length") == 200


def test_one_can_peek_at_a_seq(tab: Page, console: ServerProcess, client: httpx.Client) -> None:
    append(client, "peeked", {"n": 1}, {"n": 2})
    client.post("/v0/topics/peeked/delete", json={"before_seq": 2}).raise_for_status()
    open_topic(tab, console, "peeked")
    tab.evaluate("document.querySelector('#peek').focus()")
    tab.type("2")
    tab.press("Enter")
    tab.wait_for("document.querySelector('#peeked .record')?.dataset.seq === '2'")
    assert '"n": 2' in text_of(tab, "#peeked .record")
    tab.evaluate("document.querySelector('#peek').value = ''")
    tab.type("1")
    tab.press("Enter")
    tab.wait_for("document.querySelector('#peeked').textContent.includes('There is no record 1')")


def test_a_topic_with_partitions_is_seen_whole(
    tab: Page, console: ServerProcess, client: httpx.Client
) -> None:
    client.put("/v0/topics/spread", json={"partitions": 2}).raise_for_status()
    append(client, "spread-0", "zero")
    append(client, "spread-1", "one")
    open_topic(tab, console, "spread")
    tab.wait_for("document.querySelectorAll('#tail .record').length === 2")
    links = "[...document.querySelectorAll('#parts a')].map(link => link.textContent)"
    assert tab.wait_for(f"{links}.length && {links}") == ["spread-0", "spread-1"]
    assert tab.evaluate("document.querySelector('#peek-form').hidden")
    click(tab, "#tail .actions button")
    tab.wait_for("!!document.querySelector('dialog[open]')")
    click(tab, "dialog .primary")
    tab.wait_for("document.querySelectorAll('#tail .record').length === 3")
    tab.open(console.url)
    row = "document.querySelector('[data-key=spread]')?.textContent"
    tab.wait_for(f"{row}?.includes('2 partitions') && {row}.includes('3')")


def test_a_topic_that_is_deleted_says_so(
    tab: Page, console: ServerProcess, client: httpx.Client
) -> None:
    append(client, "gone", 1)
    open_topic(tab, console, "gone")
    client.delete("/v0/topics/gone").raise_for_status()
    tab.wait_for("document.querySelector('#tail-state').textContent === 'the topic was deleted'")
    tab.wait_for("!document.querySelector('#problem').hidden")
    tab.open("about:blank")
    tab.complaints.clear()  # the browser tells of the 404
