"""Who does not read the answers: it is told apart from those who do, and costs a bounded room."""

import contextlib
import time
from collections.abc import Iterator

import pytest
from tests.conformance.api import Api, ok, open_client, refused
from tests.conformance.raw_http import connect
from tests.load.meters import rss_bytes

from topics.testing.server_process import ServerProcess

SETTINGS = {"TOPICS_MAX_UNREAD_ANSWER_BYTES": str(8 * 1024 * 1024)}
FIRST, SECOND = "first-key-000000000", "second-key-00000000"
DIFF = b'{"limit":1000,"max_batch_bytes":8388608}'
GROWTH_BYTES = 64 * 1024 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data_dir = str(tmp_path_factory.mktemp("server") / "data")
    with ServerProcess(data_dir, settings=SETTINGS, keys=f"{FIRST},{SECOND}") as process:
        yield process


def test_answers_that_nobody_reads_are_bounded_and_another_key_is_served(
    server: ServerProcess,
) -> None:
    with open_client(server.url, key=FIRST) as client, open_client(server.url, key=SECOND) as other:
        Api(client).create("pages")
        records = [{"data": "x" * 8000} for _ in range(700)]
        ok(client.post("/v0/topics/pages", json={"records": records}))
        before = rss_bytes(server)
        ask = b"POST /v0/topics/pages/diff HTTP/1.1\r\nHost: localhost\r\n" + (
            b"Content-Type: application/json\r\nAuthorization: Bearer %b\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (FIRST.encode(), len(DIFF), DIFF)
        )
        with contextlib.ExitStack() as stack:
            for _ in range(30):
                stack.enter_context(connect(server.port)).sendall(ask * 4)
            deadline_s = time.monotonic() + 10
            while client.post("/v0/topics/pages/diff", json={}).status_code == 200:
                assert time.monotonic() < deadline_s
            answer = client.post("/v0/topics/pages/diff", json={})
            refused(answer, 429, "throttled")
            assert answer.json()["error"]["detail"] == {
                "limit": "max_unread_answer_bytes",
                "max": 4 * 1024 * 1024,
            }
            ok(client.get("/v0/health"))
            ok(client.post("/v0/topics/pages", json={"records": [{"data": 1}]}))
            ok(other.post("/v0/topics/pages/diff", json={"limit": 1}))
            assert rss_bytes(server) - before < GROWTH_BYTES
        while client.post("/v0/topics/pages/diff", json={}).status_code != 200:
            assert time.monotonic() < deadline_s
