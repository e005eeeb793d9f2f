"""Pages as answers: what a browser may do with them, and nothing else."""

from topics.api.exchange import Exchange

HTML = b"text/html; charset=utf-8"
POLICY = (
    b"Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    b"connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; "
    b"form-action 'self'\r\n"
    b"X-Content-Type-Options: nosniff\r\n"
    b"Referrer-Policy: same-origin\r\n"  # without any, a form's Origin would be null
    b"Cross-Origin-Opener-Policy: same-origin\r\n"
    b"Cross-Origin-Resource-Policy: same-origin\r\n"
)
_FRESH = b"Cache-Control: no-store\r\n"


def reply_page(exchange: Exchange, page: str, *, status: int = 200, headers: bytes = b"") -> None:
    exchange.reply(status, page.encode(), content_type=HTML, headers=POLICY + _FRESH + headers)


def redirect(exchange: Exchange, path: str, *, headers: bytes = b"") -> None:
    """Send a browser to a path of ours with GET."""
    location = b"Location: %b\r\n" % path.encode()
    exchange.reply(303, b"", content_type=HTML, headers=POLICY + _FRESH + location + headers)
