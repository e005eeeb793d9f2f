"""One client in many hands, and one behind TLS."""

import asyncio
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.client.bad_server import reply
from tests.client.faces import DEADLINE_S, fresh

from topics.client import AsyncTopics, Topics
from topics.errors import Unreachable
from topics.testing.server_process import ServerProcess

HEALTH = b'{"status":"ok","version":"1","uptime_ms":1,"performance":{"server_total_ms":0.1}}'


def test_threads_share_a_client(client: Topics) -> None:
    name = fresh()

    def write(who: int) -> None:
        for n in range(25):
            client.append(name, [{"data": [who, n]}])

    threads = [threading.Thread(target=write, args=(who,)) for who in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    data = [record.data for record in client.diff(name, limit=1000).records]
    assert sorted(data) == [[who, n] for who in range(8) for n in range(25)]
    for who in range(8):
        assert [n for by, n in data if by == who] == list(range(25))


def test_tasks_share_a_client(server: ServerProcess) -> None:
    async def run() -> int:
        name = fresh()
        async with AsyncTopics(server.url) as client:
            calls = [client.append(name, [{"data": n}]) for n in range(50)]
            await asyncio.gather(*calls)
            return (await client.state(name)).count

    assert asyncio.run(run()) == 50


def test_a_call_that_is_cancelled_leaves_no_answer_for_the_next(server: ServerProcess) -> None:
    async def run() -> tuple[int, int]:
        name = fresh()
        async with AsyncTopics(server.url) as client:
            await client.append(name, [{"data": 1}])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.diff(name, from_seq=1, wait_ms=10_000)
            return (await client.state(name)).count, (await client.diff(name)).count

    assert asyncio.run(run()) == (1, 1)


@contextmanager
def tls_server(certificate: Path, key: Path) -> Iterator[str]:
    """Answer every request with the health of a server, over TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                plain, _ = listener.accept()
                with plain, context.wrap_socket(plain, server_side=True) as connection:
                    connection.settimeout(DEADLINE_S)
                    connection.recv(65_536)
                    connection.sendall(reply(200, HEALTH, b"Connection: close"))
            except ssl.SSLError:
                continue  # somebody did not trust us
            except OSError:
                return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(DEADLINE_S)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls_is_spoken_with_those_who_are_trusted(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            str(key),
            "-out",
            str(certificate),
            "-days",
            "2",
            "-subj",
            "/CN=127.0.0.1",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
        ],
        check=True,
        capture_output=True,
    )
    trusting = ssl.create_default_context(cafile=str(certificate))
    with tls_server(certificate, key) as url:
        with Topics(url, ssl_context=trusting) as client:
            assert client.health().status == "ok"

        async def look() -> str:
            async with AsyncTopics(url, ssl_context=trusting) as client:
                return (await client.health()).status

        assert asyncio.run(look()) == "ok"
        with Topics(url, retry_for_s=0.0) as stranger, pytest.raises(Unreachable) as caught:
            stranger.health()
        assert not caught.value.sent
