"""The files a page loads: style, modules, the vendored chart library.

Keeps: only what is listed here is ever served, so no name in a URL reaches the disk.
"""

import hashlib
from functools import cache
from importlib import resources

from msgspec import Struct

_TYPES = {
    "js": b"text/javascript; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "svg": b"image/svg+xml",
}


class Asset(Struct, frozen=True, kw_only=True):
    """One file, as it is sent."""

    content: bytes
    content_type: bytes
    etag: str


@cache
def load_assets() -> dict[str, Asset]:
    """Read every file of the package's `static` folder once, by its name."""
    static = resources.files("topics.console") / "static"
    found: dict[str, Asset] = {}
    for folder in (static, static / "vendor"):
        for file in folder.iterdir():
            content_type = _TYPES.get(file.name.rpartition(".")[2])
            if content_type is not None:
                content = file.read_bytes()
                etag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
                found[file.name] = Asset(content=content, content_type=content_type, etag=etag)
    return found
