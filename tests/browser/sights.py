"""What the tests of the console share: things to see, and a look at them with axe."""

import os
from pathlib import Path
from typing import Any

import httpx
from tests.browser.chromium import Page

HOSTILE = '<img src=x onerror="window.harmed=1"><script>window.harmed=1</script>'
AXE = (Path(__file__).parent / "vendor/axe.min.js").read_text(encoding="utf-8")
RUN_AXE = """
axe.run(document, {resultTypes: ["violations"]}).then(({violations}) => violations.map(one =>
  `${one.id}: ${one.help}: ${one.nodes.map(node => node.html).join(" ")}`))
"""
SESSION_MS = 300_000  # members stay as long as the tests
PICTURES = os.environ.get("TOPICS_SCREENSHOTS_DIR")
"""Where pictures of the pages are left, if anywhere."""


def post(client: httpx.Client, path: str, body: object) -> dict[str, object]:
    found: dict[str, object] = client.post(f"/v0/{path}", json=body).raise_for_status().json()
    return found


def append(client: httpx.Client, topic: str, *data: object, **fields: object) -> None:
    post(client, f"topics/{topic}", {"records": [{"data": one, **fields} for one in data]})


def agree(tab: Page, question: str) -> None:
    """Say yes in the dialog that asks."""
    asked = "document.querySelector('dialog[open] p')?.textContent"
    assert tab.wait_for(asked) == question
    click(tab, "dialog .primary")


def make_queue(client: httpx.Client, name: str, *, jobs: int, dead: int) -> None:
    """Make a queue that has ready jobs, one leased, and dead letters."""
    config = {"type": "queue", "max_deliveries": 1, "dead_letter": f"{name}.dead"}
    client.put(f"/v0/topics/{name}", json=config).raise_for_status()
    if dead:
        append(client, name, *[{"job": number} for number in range(dead)])
        for _ in range(2):  # the second claim finds them worn out
            claimed = client.post(f"/v0/topics/{name}/claim", json={"node": "w", "max": dead})
            seqs = [job["$seq"] for job in claimed.json()["claimed"]]
            client.post(f"/v0/topics/{name}/nack", json={"node": "w", "seqs": seqs})
    append(client, name, *[{"job": number} for number in range(dead, dead + jobs)])
    post(client, f"topics/{name}/claim", {"node": "w", "max": 1, "lease_ms": 60_000})


def make_sights(client: httpx.Client) -> None:
    """Fill a server with something for every page."""
    for number in range(5):
        order = {"id": number, "total": 12.5, "lines": [{"sku": "A-1", "count": 2}]}
        append(client, "orders", order, tag=f"customer:{number}", node="shop")
    append(client, "metrics", *range(10))
    make_queue(client, "emails", jobs=4, dead=2)
    for name, source, dest in (("a", "orders", "audit"), ("b", "audit", "archive")):
        router = {"source": source, "dest": dest}
        client.put(f"/v0/routers/{name}", json=router).raise_for_status()
    client.put("/v0/topics/parcels", json={"partitions": 4}).raise_for_status()
    post(
        client,
        "groups/billing/join",
        {"member": HOSTILE, "topics": ["parcels"], "session_ms": SESSION_MS},
    )
    join = {"member": "worker-1", "topics": ["orders"], "session_ms": SESSION_MS}
    generation = post(client, "groups/billing/join", join)["generation"]
    offsets = {"orders": {"0": 2}}
    commit = {"member": "worker-1", "generation": generation, "offsets": offsets}
    post(client, "groups/billing/commit", commit)
    report: dict[str, Any] = {
        "job": "bronze",
        "run": "r1",
        "state": "running",
        "batch": 1,
        "rows": 500,
    }
    report |= {"rows_per_s": 250.5, "lag": 3, "table": "/lake", "ts": 1_767_225_600_000}
    report |= {"tables": {"_raw": 500, "orders": 500}}
    later = {"batch": 2, "rows": 1400, "ts": report["ts"] + 9000, "tables": {"orders": 1400}}
    append(client, "topics.pipeline", report, {**report, **later}, "no report", None)


def text_of(tab: Page, selector: str) -> str:
    text: str = tab.evaluate(f"document.querySelector({selector!r})?.textContent ?? ''")
    return text


def click(tab: Page, selector: str) -> None:
    tab.evaluate(f"document.querySelector({selector!r}).click()")


def violations(tab: Page) -> list[str]:
    tab.evaluate(AXE)
    found: list[str] = tab.evaluate(RUN_AXE)
    return found


def keep_picture(tab: Page, name: str) -> None:
    if PICTURES:
        (Path(PICTURES) / f"{name}.png").write_bytes(tab.picture())
