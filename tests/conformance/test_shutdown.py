"""A stop that was asked for: streams end, requests finish, nothing is lost, the port is free."""

import contextlib
import signal
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest
from tests.conformance.api import CLASSES, Api, Reply, ok, open_client, refused
from tests.conformance.sse_client import Stream

from topics.testing.server_process import ServerDidNotStart, ServerProcess


@pytest.fixture
def own(tmp_path: Path) -> ServerProcess:
    """Start a server for one test, which closes it."""
    return ServerProcess(str(tmp_path / "data"), settings={"TOPICS_DRAIN_MS": "3000"})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_loses_nothing_of_any_kept_class(own: ServerProcess, number: signal.Signals) -> None:
    with own, open_client(own.url) as client:
        api = Api(client)
        for durability in CLASSES:
            api.create(durability, durability=durability)
            api.append(durability, *range(10))
        own.send_signal(number)
        assert own.wait() == 0
        own.restart()
        for durability in CLASSES[1:]:
            assert api.data(durability) == list(range(10))
            assert api.diff(durability)["tombstone"] is None
        assert api.state("ephemeral")["head_seq"] == 10
        assert api.diff("ephemeral")["records"] == []


def test_streams_are_told_and_end(own: ServerProcess) -> None:
    with own, open_client(own.url) as client, open_client(own.url, transport="h2c") as second:
        api = Api(client)
        api.append("t", 1)
        api.create("q", type="queue")
        streams = []
        for stream_client in (client, second):
            url = ok(api.post("watch", {"topics": {"t": {"from_seq": 0}}}))["stream_url"]
            stream = Stream(stream_client, url)
            stream.next_of("caught-up")
            streams.append(stream)
        streams.append(Stream(client, "/v0/topics/q/work?node=w"))
        start_s = time.monotonic()
        assert own.terminate() == 0
        assert time.monotonic() - start_s < 5
        for stream in streams:
            with pytest.raises(EOFError):
                stream.next_of("never")
            stream.close()


def test_a_long_poll_is_answered_before_the_end(own: ServerProcess) -> None:
    with own, open_client(own.url) as client:
        Api(client).create("t")
        answers: list[httpx.Response] = []
        waiting = threading.Event()

        def wait() -> None:
            with open_client(own.url) as waiter:
                ok(waiter.get("/v0/health"))
                waiting.set()
                answers.append(waiter.post("/v0/topics/t/diff", json={"wait_ms": 25_000}))

        thread = threading.Thread(target=wait)
        thread.start()
        assert waiting.wait(5)
        time.sleep(0.2)  # the request is on its way; nothing on our side tells when it arrived
        start_s = time.monotonic()
        assert own.terminate() == 0
        thread.join()
        assert time.monotonic() - start_s < 5
        (answer,) = answers
        if answer.status_code != 200:
            refused(answer, 503, "shutting_down")


def test_what_was_acknowledged_during_a_stop_is_there(own: ServerProcess) -> None:
    acked: list[int] = []
    submitted: list[int] = []
    with own, open_client(own.url) as client:
        Api(client).create("t", durability="fsync")

        def write() -> None:
            with contextlib.suppress(httpx.HTTPError), open_client(own.url) as writer:
                for number in range(100_000):
                    submitted.append(number)
                    response = writer.post("/v0/topics/t", json={"records": [{"data": number}]})
                    if response.status_code != 200:
                        refused(response, 503, "shutting_down")
                        return
                    acked.append(number)

        thread = threading.Thread(target=write)
        thread.start()
        while len(acked) < 50:
            time.sleep(0.001)
        assert own.terminate() == 0
        thread.join()
        own.restart()
        found: list[int] = []
        page: Reply = {"next_from_seq": 0, "caught_up": False}
        while not page["caught_up"]:
            page = Api(client).diff("t", from_seq=page["next_from_seq"], limit=1000)
            found += [record["data"] for record in page["records"]]
        assert set(acked) <= set(found) <= set(submitted)
        assert found == sorted(set(found))


HEAD = (
    b"POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
)


@pytest.mark.parametrize("sent", [HEAD[:30], HEAD, HEAD + b" " * 1_000])
def test_whoever_is_still_sending_is_told_of_the_stop(own: ServerProcess, sent: bytes) -> None:
    with own, socket.create_connection(("127.0.0.1", own.port), timeout=10) as sending:
        sending.sendall(sent)
        time.sleep(0.2)  # nothing on our side tells when it arrived
        own.send_signal(signal.SIGTERM)
        answer = b""
        while not answer:  # as a client that looks for an answer between two parts
            sending.sendall(b" ")
            with contextlib.suppress(BlockingIOError):
                answer = sending.recv(65_536, socket.MSG_DONTWAIT)
            time.sleep(0.005)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"shutting_down" in answer
        assert b"\r\nRetry-After: " in answer
        assert sending.recv(1) == b""
        sending.close()
        start_s = time.monotonic()
        assert own.wait() == 0
        assert time.monotonic() - start_s < 2


def test_a_half_sent_request_does_not_hold_the_stop(own: ServerProcess) -> None:
    with own, socket.create_connection(("127.0.0.1", own.port)) as half:
        half.sendall(
            b"POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
        )
        start_s = time.monotonic()
        assert own.terminate() == 0
        assert time.monotonic() - start_s < 6


def test_a_second_server_on_the_directory_is_refused(own: ServerProcess) -> None:
    with own, pytest.raises(ServerDidNotStart) as error:
        ServerProcess(own.data_dir)
    assert "Traceback" not in error.value.said
