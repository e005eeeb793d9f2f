"""One server a module, and the four faces of a log."""

import asyncio
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from tests.client.faces import open_awaited, open_inside

import topics
from topics.client import Topics
from topics.testing.server_process import ServerProcess

# A run in the background ignores Ctrl-C and so would its children, which are tested with it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    keys = getattr(request.module, "KEYS", None)
    settings = getattr(request.module, "SETTINGS", {})
    directory = tmp_path_factory.mktemp("server")
    with ServerProcess(str(directory / "data"), settings=settings, keys=keys) as process:
        yield process


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[Topics]:
    with Topics(server.url) as found:
        yield found


@pytest.fixture(scope="module", params=["embedded", "embedded-awaited", "http", "awaited"])
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Speak to each face in turn; their answers must be the same."""
    if request.param == "embedded":
        with topics.open(str(tmp_path_factory.mktemp("embedded") / "data")) as embedded:
            yield embedded
        return
    if request.param == "embedded-awaited":
        with asyncio.Runner() as runner:
            inside = open_inside(runner, str(tmp_path_factory.mktemp("inside") / "data"))
            yield inside
            inside.close()
        return
    server: ServerProcess = request.getfixturevalue("server")
    if request.param == "http":
        with Topics(server.url) as client:
            yield client
        return
    with asyncio.Runner() as runner:
        awaited = open_awaited(runner, server.url)
        yield awaited
        awaited.close()
