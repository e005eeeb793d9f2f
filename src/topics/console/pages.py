"""The pages as HTML: the frame around them and what of them is known before any number.

Keeps: every value goes through `escape`; no script and no style stands in a page.
"""

from collections.abc import Mapping
from html import escape

import msgspec
from msgspec import Struct

from topics import __version__
from topics.console.bodies import BODIES, TOPIC_BODY

PAGES: Mapping[str, tuple[str, str]] = {
    "overview": ("/", "Topics"),
    "queues": ("/console/queues", "Queues"),
    "groups": ("/console/groups", "Groups"),
    "routers": ("/console/routers", "Routers"),
    "storage": ("/console/storage", "Storage"),
    "latency": ("/console/latency", "Latency"),
    "pipeline": ("/console/pipeline", "Pipeline"),
}


OF_QUEUES = frozenset({
    "lease_ms", "claim_jitter_ms", "max_deliveries", "dead_letter", "leases_durable",
})  # fmt: skip


class Viewer(Struct, frozen=True, kw_only=True):
    """Who looks: what the pages may offer them."""

    csrf: str | None
    """The token of a session; None where there is none to end."""
    scopes: frozenset[str]
    key: str
    """The start of the key's digest; empty where the server has no keys."""


def render_page(word: str, viewer: Viewer) -> str:
    return _frame(PAGES[word][1], BODIES[word], viewer, word=word)


def render_topic(name: str, config: Mapping[str, object], viewer: Viewer) -> str:
    """Show a topic; what only queues obey is left out of the config of a log."""
    rows = "".join(
        f"<div><dt>{escape(field)}</dt><dd>{escape(msgspec.json.encode(value).decode())}</dd></div>"
        for field, value in config.items()
        if config.get("type") != "log" or field not in OF_QUEUES
    )
    body = TOPIC_BODY.format(topic=escape(name), config=rows)
    return _frame(name, body, viewer, word="topic")


def render_error(message: str, viewer: Viewer, *, status: int) -> str:
    body = (
        f'<h1>That did not work</h1><p class="empty">{escape(message)} ({status})</p>'
        '<p><a href="/">All topics</a></p>'
    )
    return _frame("Error", body, viewer, word="")


def render_login(*, goal: str, problem: str = "") -> str:
    shown = f'<p class="problem" role="alert">{escape(problem)}</p>' if problem else ""
    body = f"""
<main id="content" class="login">
<h1>topics</h1>
<p>This server asks for a key. Yours is compared and not kept.</p>
{shown}
<form method="post" action="/console/login">
<input type="hidden" name="next" value="{escape(goal)}">
<label for="key">Key</label>
<input id="key" name="key" type="password" autocomplete="current-password" required autofocus>
<button type="submit" class="primary">Sign in</button>
</form>
</main>"""
    return f"{_head('Sign in', '')}<body>{body}</body></html>"


def _frame(title: str, body: str, viewer: Viewer, *, word: str) -> str:
    module = f'<script type="module" src="/console/static/{word}.js"></script>' if word else ""
    scopes = " ".join(sorted(viewer.scopes))
    metas = (
        f'<meta name="csrf" content="{escape(viewer.csrf or "")}">'
        f'<meta name="scopes" content="{escape(scopes)}">'
    )
    return f"""{_head(title, metas + module)}<body>
<a class="skip" href="#content">Skip to the content</a>
<header class="bar">
<a class="brand" href="/">topics</a>
<nav aria-label="Pages"><ul>{_links(word)}</ul></nav>
<div class="tools">
<span id="pulse" class="pulse" data-state="wait">waiting</span>
<button type="button" id="theme" aria-pressed="false">Dark</button>
{_sign_out(viewer)}
</div>
</header>
<main id="content" tabindex="-1">
<p id="problem" class="problem" role="status" hidden></p>
<p id="outcome" role="status" hidden></p>
<noscript><p class="problem">The numbers of this page need JavaScript.</p></noscript>
{body}
</main>
<footer>topics {escape(__version__)} · <a href="/docs">API</a> · <a href="/v0/metrics">metrics</a>\
</footer>
</body></html>"""


def _head(title: str, more: str) -> str:
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)} · topics</title>
<link rel="icon" href="/console/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/console/static/uPlot.min.css">
<link rel="stylesheet" href="/console/static/console.css">
<script src="/console/static/theme.js"></script>
<script defer src="/console/static/uPlot.iife.min.js"></script>
{more}</head>"""


def _links(word: str) -> str:
    current = "overview" if word == "topic" else word
    return "".join(
        f'<li><a href="{path}"{_current(name == current)}>{escape(title)}</a></li>'
        for name, (path, title) in PAGES.items()
    )


def _current(is_current: bool) -> str:  # noqa: FBT001 - one argument, read at its one call
    return ' aria-current="page"' if is_current else ""


def _sign_out(viewer: Viewer) -> str:
    if viewer.csrf is None:
        return ""
    return (
        '<form method="post" action="/console/logout">'
        f'<input type="hidden" name="csrf" value="{escape(viewer.csrf)}">'
        f'<button type="submit" title="Key {escape(viewer.key)}">Sign out</button></form>'
    )
