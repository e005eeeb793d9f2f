"""A headless Chromium, driven over its DevTools protocol."""

import base64
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome")
START_DEADLINE_S = 30.0
CALL_DEADLINE_S = 20.0
_LISTENS = re.compile(rb"DevTools listening on ws://127\.0\.0\.1:(\d+)/")


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab; `evaluate` runs JavaScript in it and returns the value.

    After `record` it keeps what the tab asked the network for and what it complained about.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        self.requested: list[str] = []
        self.complaints: list[str] = []

    def record(self) -> None:
        for domain in ("Network", "Log", "Runtime"):
            self._call(f"{domain}.enable")

    def open(self, url: str) -> None:
        """Load a page, also one that is there already."""
        self.evaluate("window.isBefore = true")
        self._call("Page.navigate", url=url)
        self.wait_for("!window.isBefore && document.readyState === 'complete'")

    def evaluate(self, script: str) -> Any:  # noqa: ANN401 - whatever the script says
        reply = self._call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def wait_for(self, script: str, *, deadline_s: float = CALL_DEADLINE_S) -> Any:  # noqa: ANN401 - whatever the script says
        """Return the first true value of a script; meanwhile it may fail, or the page change."""
        end_s = time.monotonic() + deadline_s
        while not (value := self._try(script)):
            assert time.monotonic() < end_s, f"never true: {script}"
            time.sleep(0.02)
        return value

    def _try(self, script: str) -> Any:  # noqa: ANN401 - whatever the script says
        reply = self._ask("Runtime.evaluate", expression=script, returnByValue=True)
        return reply.get("result", {}).get("result", {}).get("value")

    def forget(self) -> None:
        """Forget what was requested and complained about, and every cookie."""
        self._call("Network.clearBrowserCookies")
        self.requested.clear()
        self.complaints.clear()

    def resize(self, width: int, height: int) -> None:
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    def hide_bars(self) -> None:
        """Show no scroll bars from now on."""
        self._call("Emulation.setScrollbarsHidden", hidden=True)

    def prefer(self, colour_scheme: str) -> None:
        """Be a browser of someone who likes it light, or dark."""
        features = [{"name": "prefers-color-scheme", "value": colour_scheme}]
        self._call("Emulation.setEmulatedMedia", features=features)

    def press(self, key: str) -> None:
        """Press a key that has a name, or type one character."""
        named = {"Tab": 9, "Enter": 13, "Escape": 27}
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        code = {"windowsVirtualKeyCode": named[key]} if key in named else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text, **code)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    def type(self, text: str) -> None:
        self._call("Input.insertText", text=text)

    def cookies(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._call("Network.getCookies")["cookies"]
        return found

    def picture(self) -> bytes:
        """Return what is seen as a PNG."""
        return base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"])

    def _take_note(self, event: dict[str, Any]) -> None:
        method, body = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requested.append(body["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(body["exceptionDetails"]))
        elif method == "Log.entryAdded" and body["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{body['entry']['text']} {body['entry'].get('url')}")
        elif method == "Runtime.consoleAPICalled" and body["type"] in ("error", "warning"):
            self.complaints.append(str(body["args"]))

    def _call(self, method: str, **parameters: object) -> dict[str, Any]:
        reply = self._ask(method, **parameters)
        assert "error" not in reply, reply
        result: dict[str, Any] = reply["result"]
        return result

    def _ask(self, method: str, **parameters: object) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        self._connection.send(json.dumps(message))
        while True:
            reply: dict[str, Any] = json.loads(self._connection.recv(CALL_DEADLINE_S))
            if reply.get("id") == number:
                return reply
            self._take_note(reply)


class Chromium:
    """The browser process; it ends with the block that opened it."""

    def __init__(self, binary: str, profile_dir: str) -> None:
        self._child = subprocess.Popen(
            [
                binary,
                "--headless=new",
                "--no-sandbox",  # tests may run as root, where Chromium has none
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--no-proxy-server",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--remote-debugging-port=0",
                f"--user-data-dir={profile_dir}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._port = 0
        self._has_port = threading.Event()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @contextmanager
    def page(self) -> Iterator[Page]:
        """Hold the one tab there is."""
        url = self._tab_url()
        # No pings: a test may do other things for a while, and nobody reads the answers meanwhile.
        with connect(url, proxy=None, max_size=None, ping_interval=None) as connection:
            yield Page(connection)

    def _tab_url(self) -> str:
        assert self._has_port.wait(START_DEADLINE_S)
        assert self._port, "Chromium did not start"
        end_s = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < end_s:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/json/list") as reply:
                tabs = [tab for tab in json.load(reply) if tab["type"] == "page"]
            if tabs:
                url: str = tabs[0]["webSocketDebuggerUrl"]
                return url
            time.sleep(0.05)
        raise AssertionError("Chromium has no tab")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._child.pid, signal.SIGKILL)  # its helpers too
        self._child.wait()
        self._listener.join()
        assert self._child.stderr is not None
        self._child.stderr.close()

    def _listen(self) -> None:
        assert self._child.stderr is not None
        for line in self._child.stderr:
            if found := _LISTENS.search(line):
                self._port = int(found[1])
                self._has_port.set()
        self._has_port.set()
