"""Peers that send rubbish, too much, or read nothing: the server lives and stays small."""

import resource
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.conformance.api import fresh
from tests.conformance.lines import LineClient, free_port

from topics.testing.server_process import ServerProcess

PORT = free_port()
SETTINGS = {
    "TOPICS_BROKER_PORT": str(PORT),
    "TOPICS_SLOW_READER_MS": "700",
    "TOPICS_IDLE_TIMEOUT_MS": "500",
}
MIB = 1 << 20
FUZZ_S = 4.0
WORDS = (
    b"V1", b"|", b"|", b"PRODUCE", b"CONSUME", b"JOIN", b"SYNC", b"HEARTBEAT", b"LEAVE", b"COMMIT",
    b"OFFSET", b"AUTH", b" ", b" ", b"t", b"g", b"c", b"k:v", b":", b"0", b"-1", b"99999999999999",
    b"acks=all", b"\n", b"\n", b"\r\n", b"\x00", b"\xff\xfe", "ü".encode(), b"x" * 300,
)  # fmt: skip


@pytest.fixture
def client(server: ServerProcess) -> Iterator[LineClient]:
    del server  # runs
    with LineClient(PORT) as client:
        yield client


def resident_bytes(server: ServerProcess) -> int:
    pages = int(Path(f"/proc/{server.pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def rubbish(chance: Random) -> bytes:
    if chance.random() < 0.3:
        return chance.randbytes(chance.randrange(1, 20_000))
    return b"".join(chance.choices(WORDS, k=chance.randrange(1, 400)))


@pytest.mark.parametrize("seed", [1, 2])
def test_random_bytes_are_answered_line_by_line_and_a_good_line_still_works(
    server: ServerProcess, seed: int
) -> None:
    chance = Random(seed)
    before = resident_bytes(server)
    until_s = time.monotonic() + FUZZ_S / 2
    sent = 0
    while time.monotonic() < until_s:
        with LineClient(PORT) as client:
            client.ok("OFFSET", "g t 0")  # who begins with rubbish is hung up on
            for _ in range(chance.randrange(1, 6)):
                data = rubbish(chance)
                client.send(data)
                sent += data.count(b"\n")
                if chance.random() < 0.2:
                    break  # and hang up in the middle
            else:
                client.send(b"\nV1|the-good-one|OFFSET|g t 0\n")
                while not (reply := client.read()).startswith(b"V1|the-good-one|"):
                    assert reply.startswith(b"V1|"), reply
                assert reply == b"V1|the-good-one|OK|offset=0\n"
    assert sent > 100
    assert resident_bytes(server) - before < 64 * MIB
    assert "Traceback" not in server.said


def test_a_line_without_end_costs_no_memory(client: LineClient, server: ServerProcess) -> None:
    before = resident_bytes(server)
    client.send(b"V1|9|PRODUCE|t k:")
    for _ in range(64):
        client.send(b"x" * MIB)
    assert client.read() == b"V1|9|ERR|BAD_REQUEST|a line may have 1048576 bytes\n"
    assert resident_bytes(server) - before < 16 * MIB
    client.send(b"\n")
    assert client.ok("OFFSET", "g t 0") == "offset=0"


def test_who_reads_nothing_is_bounded_and_hung_up_on_while_others_are_served(
    client: LineClient, server: ServerProcess
) -> None:
    topic = fresh()
    for _ in range(10):
        client.ok("PRODUCE", f"{topic} user1:{'x' * 100_000}")
    before = resident_bytes(server)
    with LineClient(PORT, receive_bytes=4096) as sleeper:
        sleeper.socket.settimeout(20.0)
        until_s = time.monotonic() + 15.0
        hung_up = False
        try:  # each of these asks for a MiB; the kernel holds some, the server a few
            while time.monotonic() < until_s:
                sleeper.send(f"V1|1|CONSUME|{topic} 2 0\n".encode() * 500)
                assert client.ok("CONSUME", f"{topic} 2 9").startswith("messages=9:")
                assert resident_bytes(server) - before < 48 * MIB
        except ConnectionError:
            hung_up = True
        assert hung_up
    assert client.ok("CONSUME", f"{topic} 2 9").startswith("messages=9:")


def test_half_a_line_is_not_waited_for_but_a_quiet_peer_is_welcome(client: LineClient) -> None:
    client.ok("OFFSET", "g t 0")
    with LineClient(PORT) as half:
        half.send(b"V1|1|OFFSET|g ")
        try:  # for longer than the quiet one may be told idle
            heard = half.read()
        except ConnectionError:
            heard = b""
        assert heard == b""
    assert client.ok("OFFSET", "g t 0") == "offset=0"


def test_many_connections_that_create_a_topic_at_once_are_each_answered(
    server: ServerProcess,
) -> None:
    del server  # runs
    clients = [LineClient(PORT) for _ in range(60)]
    for topic in [fresh() for _ in range(10)]:
        for number, client in enumerate(clients):
            client.send(f"V1|{number}|PRODUCE|{topic} user1:{number}\n".encode() * 3)
        offsets: list[int] = []
        for number, client in enumerate(clients):
            replies = [client.read().decode() for _ in range(3)]
            starts = {reply.partition(" offset=")[0] for reply in replies}
            assert starts == {f"V1|{number}|OK|partition=2"}
            own = [int(reply.rpartition("=")[2]) for reply in replies]
            assert own == sorted(own)
            offsets += own
        assert sorted(offsets) == list(range(180))
    for client in clients:
        client.close()
