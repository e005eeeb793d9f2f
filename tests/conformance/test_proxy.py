"""The nginx block of docs/operating/proxy.md in front of a real server, over TLS."""

import json
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from tests.conformance.api import Api, fresh, ok, open_client, refused
from tests.conformance.sse_client import Stream
from websockets.sync.client import connect

from topics.testing.server_process import ServerProcess

PAGE = Path(__file__).parents[2] / "docs/operating/proxy.md"
NAME = "log.example.org"
SETTINGS = {"TOPICS_ALLOWED_HOSTS": NAME}
DEADLINE_S = 10.0

pytestmark = [
    pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
]


class Proxy(NamedTuple):
    """A running nginx, and who trusts it."""

    port: int
    directory: Path

    def context(self) -> ssl.SSLContext:
        """Trust the proxy; a new one each time, since clients write their protocols into it."""
        return ssl.create_default_context(cafile=str(self.directory / "cert.pem"))

    def client(self, *, http2: bool = False) -> httpx.Client:
        return httpx.Client(
            base_url=f"https://127.0.0.1:{self.port}",
            headers={"Host": f"{NAME}:{self.port}"},
            verify=self.context(),
            http2=http2,
            timeout=DEADLINE_S,
            trust_env=False,
        )


def documented_block() -> str:
    found = re.search(r"^```nginx\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def make_certificate(directory: Path) -> None:
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    names = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME},IP:127.0.0.1"]
    files = ["-keyout", str(directory / "key.pem"), "-out", str(directory / "cert.pem")]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def write_config(directory: Path, *, upstream: int, port: int) -> Path:
    block = documented_block()
    for documented, ours in {
        "server 127.0.0.1:4000;": f"server 127.0.0.1:{upstream};",
        "listen 443 ": f"listen 127.0.0.1:{port} ",
        f"/etc/ssl/{NAME}.pem": f"{directory}/cert.pem",
        f"/etc/ssl/{NAME}.key": f"{directory}/key.pem",
        "/var/log/nginx/topics.log": f"{directory}/access.log",
    }.items():
        assert block.count(documented) == 1, documented
        block = block.replace(documented, ours)
    temporary = "".join(
        f"{kind}_temp_path {directory}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = directory / "nginx.conf"
    config.write_text(
        f"daemon off; master_process off; pid {directory}/pid; error_log {directory}/error.log;\n"
        f"events {{ worker_connections 256; }}\nhttp {{\n{temporary}{block}}}\n"
    )
    return config


@pytest.fixture(scope="module")
def proxy(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with running_proxy(tmp_path_factory.mktemp("nginx"), server) as running:
        yield running


@contextmanager
def running_proxy(directory: Path, server: ServerProcess) -> Iterator[Proxy]:
    make_certificate(directory)
    port = free_port()
    config = write_config(directory, upstream=server.port, port=port)
    command = ["nginx", "-p", str(directory), "-c", str(config), "-e", str(directory / "error.log")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        wait_until_listening(process, port)
        yield Proxy(port, directory)
    finally:
        process.terminate()
        process.communicate(timeout=DEADLINE_S)


def wait_until_listening(process: "subprocess.Popen[bytes]", port: int) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.01)
        else:
            return
    _, said = process.communicate(timeout=DEADLINE_S)
    raise AssertionError(f"nginx does not listen: {said.decode()}")


@pytest.fixture(params=[False, True], ids=["http1", "http2"])
def client(request: pytest.FixtureRequest, proxy: Proxy) -> Iterator[httpx.Client]:
    with proxy.client(http2=request.param) as opened:
        yield opened


def test_the_cookie_of_the_console_is_never_sent_in_the_clear(tmp_path: Path) -> None:
    """Whatever the browser says of itself: the proxy says that it is TLS."""
    data_dir = str(tmp_path / "data")
    with (
        ServerProcess(data_dir, settings=SETTINGS, keys="owner") as server,
        running_proxy(tmp_path, server) as proxy,
        proxy.client() as browser,
    ):
        for scheme in ("https", "http"):
            origin = {"Origin": f"{scheme}://{NAME}:{proxy.port}"}
            reply = browser.post("/console/login", data={"key": "owner"}, headers=origin)
            assert reply.status_code == 303
            assert "Secure" in reply.headers["set-cookie"].split("; ")


def test_appends_and_reads_pass(client: httpx.Client) -> None:
    api, topic = Api(client), fresh()
    api.append(topic, 1, 2)
    assert api.data(topic) == [1, 2]
    router = f"{topic}-%3Ecopy"
    ok(api.put(f"routers/{router}", {"source": topic, "dest": f"{topic}.copy"}), 201)
    refused(api.post("topics/none/diff"), 404, "topic_not_found")


def test_the_client_gets_http2(proxy: Proxy) -> None:
    with proxy.client(http2=True) as client:
        assert client.get("/v0/health").http_version == "HTTP/2"


def test_a_body_of_many_megabytes_passes(client: httpx.Client) -> None:
    topic = fresh()
    Api(client).append(topic, *("x" * 500_000 for _ in range(20)))
    assert Api(client).state(topic)["count"] == 20


def test_events_arrive_when_they_happen(client: httpx.Client, http1: Api) -> None:
    topic = fresh()
    http1.append(topic, 1)
    url = ok(Api(client).post("watch", {"topics": {topic: {"from_seq": 0}}}))["stream_url"]
    with Stream(client, url) as stream:
        stream.next_of("caught-up")
        for n in (2, 3):  # one after the other: a proxy that gathers would hold the first
            http1.append(topic, n)
            assert [record["data"] for record in stream.records(1)] == [n]


def test_a_read_that_waits_is_answered_by_the_next_write(client: httpx.Client, http1: Api) -> None:
    topic = fresh()
    http1.create(topic)
    writer = threading.Timer(0.2, http1.append, (topic, "news"))
    writer.start()
    page = Api(client).diff(topic, wait_ms=8_000)
    writer.join()
    assert [record["data"] for record in page["records"]] == ["news"]


def test_a_websocket_publishes_and_hears(proxy: Proxy) -> None:
    topic = fresh()
    raw = socket.create_connection(("127.0.0.1", proxy.port))
    url = f"wss://{NAME}:{proxy.port}/v0/ws"
    with connect(url, sock=raw, ssl=proxy.context(), compression=None, proxy=None) as connection:
        connection.send(
            json.dumps({"op": "publish", "topic": topic, "records": [{"data": "hello"}]})
        )
        assert json.loads(connection.recv(DEADLINE_S))["op"] == "ack"
        connection.send(json.dumps({"op": "subscribe", "topics": {topic: {"from_seq": 0}}}))
        while (message := json.loads(connection.recv(DEADLINE_S)))["op"] != "record":
            pass
        assert [record["data"] for record in message["records"]] == ["hello"]


def test_a_reader_that_leaves_is_noticed(proxy: Proxy, server: ServerProcess) -> None:
    """A job goes back at once when its worker hangs up on the proxy."""
    topic = fresh("jobs")
    with open_client(server.url) as direct:
        api = Api(direct)
        api.create(topic, type="queue", lease_ms=60_000)
        api.append(topic, "job")
        with proxy.client() as client:
            stream = Stream(client, f"/v0/topics/{topic}/work?node=w")
            stream.next_of("job")
            stream.close()
        deadline_s = time.monotonic() + DEADLINE_S
        while not (claimed := ok(api.post(f"topics/{topic}/claim", {"node": "other"})))["count"]:
            assert time.monotonic() < deadline_s
        assert claimed["claimed"][0]["deliveries"] == 2


def test_the_query_is_not_in_the_access_log(proxy: Proxy) -> None:
    with proxy.client() as client:
        assert client.get("/v0/watch/none?token=s3cret").status_code >= 400
    deadline_s = time.monotonic() + DEADLINE_S
    log = proxy.directory / "access.log"
    while "/v0/watch/none" not in log.read_text():
        assert time.monotonic() < deadline_s
    assert "s3cret" not in log.read_text()
