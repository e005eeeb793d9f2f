"""Keys: how they are given, what a start refuses, what a stream needs."""

import re
from pathlib import Path

import httpx
import pytest
from tests.conformance.api import Api, Reply, fresh, ok, open_client, refused
from tests.conformance.sse_client import ACCEPT, Stream
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from topics.testing.server_process import ServerDidNotStart, ServerProcess

ALL, READER, OTHER = "all-key-0123456789", "reader-key-0123456789", "other-key-0123456789"
KEYS = f"{ALL},{READER}:read,{OTHER}:r+w:in.|also."


@pytest.fixture(params=["http1", "h2c"])
def client_of(request: pytest.FixtureRequest, server: ServerProcess) -> "Clients":
    return Clients(server.url, request.param)


class Clients:
    """A client for a key, over one transport."""

    def __init__(self, url: str, transport: str) -> None:
        self._url = url
        self._transport = transport

    def __call__(self, key: str | None) -> Api:
        return Api(open_client(self._url, transport=self._transport, key=key))


def take_ticket(client: httpx.Client) -> Reply:
    response = client.post("/v0/tickets", json={})
    return ok(response, 201 if response.status_code == 201 else 200)


def get(api: Api, path: str, authorization: str | None) -> int:
    headers = {} if authorization is None else {"Authorization": authorization}
    with api.client:
        return api.client.get(path, headers=headers).status_code


@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "Bearer",
        "Bearer wrong",
        f"Bearer {ALL}x",
        f"Bearer {ALL[:-1]}",
        f"Basic {ALL}",
        ALL,
        f"Bearer {ALL}:read",
        f"Bearer {ALL} {ALL}",
    ],
)
def test_without_a_right_key_nothing_is_told(client_of: Clients, given: str | None) -> None:
    for path in ("/v0/topics", "/v0/topics/absent", "/v0/metrics", "/v0/routers"):
        headers = {} if given is None else {"Authorization": given}
        with client_of(None).client as client:
            refused(client.get(path, headers=headers), 401, "unauthorized")


def test_the_word_bearer_has_no_case(client_of: Clients) -> None:
    assert get(client_of(None), "/v0/topics", f"bearer {ALL}") == 200


@pytest.mark.parametrize("path", ["/v0/health", "/healthz", "/v0/ready", "/readyz"])
def test_probes_are_open(client_of: Clients, path: str) -> None:
    assert get(client_of(None), path, None) == 200


def test_a_key_in_the_query_opens_only_streams(server: ServerProcess) -> None:
    with open_client(server.url) as nobody, open_client(server.url, key=ALL) as client:
        refused(nobody.get(f"/v0/topics?token={ALL}"), 401, "unauthorized")
        topic = fresh()
        Api(client).append(topic, 1)
        session = ok(client.post("/v0/watch", json={"topics": {topic: {"from_seq": 0}}}))
        with Stream(nobody, f"{session['stream_url']}?token={ALL}") as stream:
            assert stream.records(1)[0]["data"] == 1
        queue = fresh("q")
        Api(client).create(queue, type="queue")
        response = nobody.get(f"/v0/topics/{queue}/work?node=w&token=wrong", headers=ACCEPT)
        refused(response, 401, "unauthorized")
        Api(client).append(queue, 1)
        with Stream(nobody, f"/v0/topics/{queue}/work?node=w&token={ALL}") as stream:
            assert stream.next_of("job").json["data"] == 1


def test_a_session_opens_only_for_its_creator(server: ServerProcess) -> None:
    with (
        open_client(server.url, key=ALL) as creator,
        open_client(server.url, key=READER) as reader,
        open_client(server.url) as nobody,
    ):
        topic = fresh()
        Api(creator).append(topic, 1)
        url = ok(creator.post("/v0/watch", json={"topics": {topic: {"from_seq": 0}}}))["stream_url"]
        refused(nobody.get(url, headers=ACCEPT), 401, "unauthorized")
        refused(reader.get(url, headers=ACCEPT), 401, "unauthorized")
        with Stream(creator, url) as stream:
            assert stream.records(1)[0]["data"] == 1


def test_a_ticket_opens_one_stream_once(server: ServerProcess) -> None:
    with open_client(server.url, key=READER) as reader, open_client(server.url) as nobody:
        with open_client(server.url, key=ALL) as writer:
            topic = fresh()
            Api(writer).append(topic, 1)
        url = ok(reader.post("/v0/watch", json={"topics": {topic: {"from_seq": 0}}}))["stream_url"]
        ticket = take_ticket(reader)
        assert ticket["expires_ms"] > 0
        refused(nobody.get(f"/v0/topics?ticket={ticket['ticket']}"), 401, "unauthorized")
        with Stream(nobody, f"{url}?ticket={ticket['ticket']}") as stream:
            assert stream.records(1)[0]["data"] == 1
        again = nobody.get(f"{url}?ticket={ticket['ticket']}", headers=ACCEPT)
        refused(again, 401, "unauthorized")
        refused(nobody.post("/v0/tickets", json={}), 401, "unauthorized")


def test_a_ticket_has_the_rights_of_its_creator_only(server: ServerProcess) -> None:
    with open_client(server.url, key=READER) as reader, open_client(server.url) as nobody:
        queue = fresh("q")
        with open_client(server.url, key=ALL) as owner:
            Api(owner).create(queue, type="queue")
        ticket = take_ticket(reader)["ticket"]
        response = nobody.get(f"/v0/topics/{queue}/work?node=w&ticket={ticket}", headers=ACCEPT)
        refused(response, 403, "forbidden")


def test_a_websocket_needs_a_key(server: ServerProcess) -> None:
    url = server.url.replace("http", "ws") + "/v0/ws"
    with pytest.raises(InvalidStatus) as refusal, connect(url, proxy=None):
        pass
    assert refusal.value.response.status_code == 401
    with connect(url, proxy=None, additional_headers={"Authorization": f"Bearer {ALL}"}) as socket:
        socket.send('{"op":"ping"}')
        assert "pong" in str(socket.recv(5))


def test_no_key_is_ever_told(server: ServerProcess) -> None:
    with open_client(server.url, key=ALL) as client:
        texts = [client.get(path).text for path in ("/v0/metrics", "/v0/topics", "/openapi.json")]
    with open_client(server.url, key="wrong-key-9876543210") as client:
        texts.append(client.get("/v0/topics").text)
        texts.append(client.get("/v0/watch/wid_x?token=secret-in-the-url").text)
    texts.append(server.said)
    for secret in (ALL, READER, OTHER, "wrong-key-9876543210", "secret-in-the-url"):
        assert not any(secret in text for text in texts)


def environment_of(pid: int) -> bytes:
    """Return what the system shows of it to those who may look."""
    return Path(f"/proc/{pid}/environ").read_bytes()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="a system without /proc")
def test_no_key_is_in_what_the_system_shows_of_the_process(server: ServerProcess) -> None:
    shown = environment_of(server.pid)
    assert b"TOPICS_WAL_FILE_BYTES=" in shown
    assert not any(key.encode() in shown for key in (ALL, READER, OTHER))
    assert b"TOPICS_API_KEYS=\0" in shown
    assert "can be read in the environment" not in server.said


def test_keys_may_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("first\nsecond:read\n", encoding="utf-8")
    settings = {"TOPICS_API_KEYS_FILE": str(file)}
    with ServerProcess(str(tmp_path / "data"), settings=settings) as server:
        for key, reads, writes in (("first", 200, 200), ("second", 200, 403), ("third", 401, 401)):
            with open_client(server.url, key=key) as client:
                assert client.get("/v0/topics").status_code == reads
                assert client.request("DELETE", "/v0/topics/x").status_code == writes


def test_no_key_is_on_the_disk(server: ServerProcess) -> None:
    with open_client(server.url, key=ALL) as client:
        Api(client).append(fresh(), 1)
    for path in Path(server.data_dir).rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(key.encode() in content for key in (ALL, READER, OTHER))


@pytest.mark.parametrize(
    "keys",
    [
        "k:fly",
        "k:read+fly",
        ":read",
        "k,,l",
        "k:r+",
        ",",
        "k:x",
        "",
        "kä",
    ],
)
def test_a_malformed_entry_stops_the_start(tmp_path: Path, keys: str) -> None:
    with pytest.raises(ServerDidNotStart) as error:
        ServerProcess(str(tmp_path / "data"), keys=keys)
    assert error.value.returncode not in {None, 0}
    assert error.value.said
    assert "Traceback" not in error.value.said


def test_an_open_bind_without_keys_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServerDidNotStart) as error:
        ServerProcess(str(tmp_path / "data"), settings={"TOPICS_HOST": "0.0.0.0"})
    assert re.search("TOPICS_API_KEYS", error.value.said)


def test_no_keys_are_said_loudly(tmp_path: Path) -> None:
    with ServerProcess(str(tmp_path / "data")) as server, open_client(server.url) as client:
        assert client.get("/v0/topics").status_code == 200
        assert re.search(r"auth|key", server.said, re.IGNORECASE)


def test_probes_can_be_closed(tmp_path: Path) -> None:
    settings = {"TOPICS_PROBE_AUTH": "true"}
    with ServerProcess(str(tmp_path / "data"), settings=settings, keys=KEYS) as server:
        with open_client(server.url) as nobody:
            for path in ("/v0/health", "/v0/ready", "/healthz", "/readyz"):
                refused(nobody.get(path), 401, "unauthorized")
        with open_client(server.url, key=READER) as reader:
            assert reader.get("/v0/ready").status_code == 200
