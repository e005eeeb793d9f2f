"""A backup asked for over HTTP: whole when it is answered, and its refusals have names."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.client.bad_server import serving
from tests.client.faces import AnyLog, open_awaited

import topics
from topics.client import Topics
from topics.errors import BackupExists, Forbidden, RequestError, RouteNotFound, Unreachable
from topics.testing.server_process import ServerProcess

KEYS = "boss,part:rwda:orders."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("backups")


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = str(tmp_path_factory.mktemp("server") / "data")
    with ServerProcess(data, settings={"TOPICS_BACKUP_DIR": str(folder)}, keys=KEYS) as process:
        yield process


@pytest.fixture(params=["http", "awaited"])
def remote(request: pytest.FixtureRequest, server: ServerProcess) -> Iterator[AnyLog]:
    if request.param == "http":
        with Topics(server.url, token="boss") as client:
            yield client
        return
    with asyncio.Runner() as runner:
        awaited = open_awaited(runner, server.url, token="boss")
        yield awaited
        awaited.close()


def test_a_backup_can_be_opened_and_its_name_is_taken(
    remote: AnyLog, folder: Path, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.id
    remote.append(f"of-{name}", [{"data": 1}, {"data": 2}])
    done = remote.backup(name)
    assert done.topics >= 1
    assert done.bytes > 0
    with topics.open(str(folder / name)) as restored:
        assert [record.data for record in restored.diff(f"of-{name}").records] == [1, 2]
    with pytest.raises(BackupExists):
        remote.backup(name)


def test_a_backup_is_refused_by_a_name_and_to_a_key(server: ServerProcess) -> None:
    with Topics(server.url, token="part") as client:
        with pytest.raises(Forbidden):
            client.backup("mine")
        with pytest.raises(RequestError):
            client.backup("../out")


def test_a_server_without_a_folder_has_no_backups(tmp_path: Path) -> None:
    with (
        ServerProcess(str(tmp_path / "data")) as process,
        Topics(process.url) as client,
        pytest.raises(RouteNotFound, match="TOPICS_BACKUP_DIR"),
    ):
        client.backup("b")


def test_a_backup_that_may_have_been_made_is_not_asked_for_again() -> None:
    with serving(lambda connection, _: connection.close()) as server, Topics(server.url) as client:
        with pytest.raises(Unreachable) as caught:
            client.backup("b")
        assert caught.value.sent
        assert len(server.requests) == 1
