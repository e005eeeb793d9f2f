"""Plain writes of one turn while the log is full: each waits for room by itself, in its order."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor

from tests.conformance.api import Api, Reply, fresh

from topics.testing.server_process import ServerProcess

# A few writes are more than may be queued.
SETTINGS = {"TOPICS_WAL_QUEUE_BYTES": "65536", "TOPICS_WAL_SHARDS": "1"}
WRITERS = 12
ROUNDS = 12
PIPELINED = 6
PAD = "x" * 3000


def write(server: ServerProcess, topic: str, writer: int) -> list[tuple[str, int, Reply]]:
    """Send pipelines of writes; return what each was, its status and its answer."""
    told = []
    with socket.create_connection(("127.0.0.1", server.port)) as wire, wire.makefile("rb") as lines:
        for turn in range(ROUNDS):
            names = [f"{writer}/{turn}/{number}" for number in range(PIPELINED)]
            wire.sendall(b"".join(_request(topic, name) for name in names))
            for name in names:
                status, size = int(lines.readline().split()[1]), 0
                while (line := lines.readline().lower()) != b"\r\n":
                    if line.startswith(b"content-length:"):
                        size = int(line.split(b":")[1])
                told.append((name, status, json.loads(lines.read(size))))
    return told


def _request(topic: str, name: str) -> bytes:
    body = json.dumps({"records": [{"data": f"{name} {i} {PAD}"} for i in range(3)]}).encode()
    query = b"?return_seqs=true" if name.endswith("1") else b""
    return (
        b"POST /v0/topics/%b%b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (topic.encode(), query, len(body), body)
    )


def test_plain_writes_of_a_turn_wait_for_room_each_by_itself(
    server: ServerProcess, http1: Api
) -> None:
    topic = fresh("orders")
    http1.create(topic, durability="fsync")
    with ThreadPoolExecutor(WRITERS) as pool:
        writing = [pool.submit(write, server, topic, writer) for writer in range(WRITERS)]
        told = [answer for future in writing for answer in future.result(60)]
    assert {status for _, status, _ in told} <= {200, 429}
    written = [(name, reply) for name, status, reply in told if status == 200]
    meant = {seq: f"{name} {i}" for name, reply in written for i, seq in enumerate(reply["seqs"])}
    assert len(meant) == 3 * len(written), "a seq was given twice"
    found: dict[int, str] = {}
    while len(found) < http1.state(topic)["count"]:
        page = http1.diff(topic, from_seq=len(found), limit=200)
        found |= {r["$seq"]: " ".join(r["data"].split()[:2]) for r in page["records"]}
    assert found == meant
    for writer in range(WRITERS):
        mine = [r["first_seq"] for name, r in written if name.startswith(f"{writer}/")]
        assert mine == sorted(mine), "the writes of a connection changed places"
    assert any("throttle_wait_ms" in reply["performance"] for _, reply in written), "none waited"
