"""One server a module, on a fresh directory; a module changes it by naming SETTINGS or KEYS."""

from collections.abc import Iterator

import pytest
from tests.conformance.api import CLASSES, TRANSPORTS, Api, open_client

from topics.testing.server_process import ServerProcess


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    settings = getattr(request.module, "SETTINGS", {})
    keys = getattr(request.module, "KEYS", None)
    directory = tmp_path_factory.mktemp("server")
    with ServerProcess(str(directory / "data"), settings=settings, keys=keys) as process:
        yield process


@pytest.fixture(scope="module", params=TRANSPORTS)
def api(request: pytest.FixtureRequest, server: ServerProcess) -> Iterator[Api]:
    """Speak the routes over each transport in turn."""
    with open_client(server.url, transport=request.param) as client:
        yield Api(client)


@pytest.fixture(scope="module")
def http1(server: ServerProcess) -> Iterator[Api]:
    """Speak the routes over HTTP/1.1, where the transport does not matter."""
    with open_client(server.url) as client:
        yield Api(client)


@pytest.fixture(params=CLASSES)
def durability(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name
