"""`GET /docs`: the OpenAPI document as one page that loads nothing from anywhere."""

from html import escape
from typing import TYPE_CHECKING, Any

import msgspec

from topics.api.exchange import Exchange
from topics.api.openapi import document_of

if TYPE_CHECKING:
    from topics.api.app import App

_POLICY = (
    b"Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    b"X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
)
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem;
  color-scheme: light dark; }
code, pre { font: 14px/1.4 ui-monospace, monospace; }
pre { overflow: auto; padding: .75rem; border: 1px solid color-mix(in srgb, currentColor 20%,
  transparent); border-radius: .4rem; }
section { border-top: 1px solid color-mix(in srgb, currentColor 20%, transparent); }
h2 b { display: inline-block; min-width: 5rem; }
h2 { font-size: 1.05rem; }
"""


def show(app: "App", exchange: Exchange) -> None:
    page = render(document_of(app)).encode()
    exchange.reply(200, page, content_type=b"text/html; charset=utf-8", headers=_POLICY)


def render(document: dict[str, Any]) -> str:
    info = document["info"]
    sections = [
        _operation(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = [
        f'<section id="{escape(name)}"><h2>{escape(name)}</h2>{_json(schema)}</section>'
        for name, schema in sorted(document["components"]["schemas"].items())
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width">'
        f"<title>{escape(info['title'])} {escape(info['version'])}</title>"
        f"<style>{_STYLE}</style></head><body><h1>{escape(info['title'])}</h1>"
        f"<p>{escape(info['description'])} Version {escape(info['version'])}; for programs: "
        f'<a href="/openapi.json">openapi.json</a>.</p>'
        f"{''.join(sections)}<h1>Models</h1>{''.join(schemas)}</body></html>"
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parameters = "".join(
        f"<li><code>{escape(p['name'])}</code> in {escape(p['in'])}: "
        f"<code>{escape(_compact(p['schema']))}</code></li>"
        for p in operation["parameters"]
    )
    answers = ", ".join(operation["responses"])
    body = operation.get("requestBody")
    shown = f"<p>Body:</p>{_json(body['content'])}" if body else ""
    return (
        f"<section><h2><b>{escape(method.upper())}</b> <code>{escape(path)}</code></h2>"
        f"<p>{escape(operation['summary'])}. {escape(operation.get('description', ''))}</p>"
        f"<ul>{parameters}</ul><p>Answers: {escape(answers)}</p>"
        f"<details><summary>Body and answers</summary>{shown}{_json(operation['responses'])}"
        f"</details></section>"
    )


def _json(value: object) -> str:
    return (
        f"<pre>{escape(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())}</pre>"
    )


def _compact(value: object) -> str:
    return msgspec.json.encode(value).decode()
