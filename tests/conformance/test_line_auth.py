"""Keys over lines: the first line shows one, and it may do what it may do over HTTP."""

from collections.abc import Iterator

import pytest
from tests.conformance.api import open_client
from tests.conformance.lines import LineClient, free_port

from topics.testing.server_process import ServerProcess

PORT = free_port()
SETTINGS = {"TOPICS_BROKER_PORT": str(PORT), "TOPICS_HEAD_TIMEOUT_MS": "300"}
KEYS = "root-key,reader-key:r,taker-key:c,writer-key:w,shop-key:rw:shop.|g.,odd|key:rw"


@pytest.fixture(scope="module", autouse=True)
def topics(server: ServerProcess) -> None:
    with open_client(server.url, key="root-key") as client:
        for topic in ("shop.orders", "other"):
            assert client.put(f"/v0/topics/{topic}", json={"partitions": 3}).status_code == 201


@pytest.fixture
def client(server: ServerProcess) -> Iterator[LineClient]:
    del server  # runs
    with LineClient(PORT) as client:
        yield client


LINES = {
    "PRODUCE": "k:v",
    "CONSUME": "0 0",
    "JOIN": "c",
    "SYNC": "c 0",
    "HEARTBEAT": "c 0",
    "LEAVE": "c 0",
    "COMMIT": "0 0",
    "OFFSET": "0",
}
FORBIDDEN = ("lacks the scope", "may not use this name")


def line_of(command: str, topic: str, *, group: str = "g.1") -> str:
    start = topic if command in ("PRODUCE", "CONSUME") else f"{group} {topic}"
    return f"V1|1|{command}|{start} {LINES[command]}"


def is_forbidden(reply: str) -> bool:
    return reply.startswith("V1|1|ERR|BAD_REQUEST|") and any(why in reply for why in FORBIDDEN)


@pytest.mark.parametrize("command", LINES)
@pytest.mark.parametrize(
    ("key", "scopes", "sees_other"),
    [
        ("root-key", "rcw", True),
        ("reader-key", "r", True),
        ("taker-key", "c", True),
        ("writer-key", "cw", True),
        ("shop-key", "rcw", False),
        ("odd|key", "rcw", True),
    ],
)
def test_scopes_and_prefixes_hold_for_every_command(
    client: LineClient, command: str, key: str, scopes: str, *, sees_other: bool
) -> None:
    assert client.ask(f"V1|0|AUTH|{key}") == "V1|0|OK"
    allowed = {"PRODUCE": "w", "CONSUME": "r", "OFFSET": "r"}.get(command, "c") in scopes
    assert is_forbidden(client.ask(line_of(command, "shop.orders"))) is not allowed
    # A group of its own: one that has to do with both topics is closed to a key of one prefix.
    reply = client.ask(line_of(command, "other", group="g.2"))
    assert is_forbidden(reply) is not (allowed and sees_other)


@pytest.mark.parametrize("command", ["JOIN", "SYNC", "HEARTBEAT", "LEAVE", "COMMIT", "OFFSET"])
def test_a_group_must_be_covered_by_its_name_and_by_all_its_topics(
    client: LineClient, command: str
) -> None:
    with LineClient(PORT) as root:
        root.ok("AUTH", "root-key")
        root.ok("JOIN", "g.mixed other someone")
    client.ok("AUTH", "shop-key")
    assert is_forbidden(client.ask(line_of(command, "shop.orders", group="g.mixed")))
    assert is_forbidden(client.ask(line_of(command, "shop.orders", group="private")))


@pytest.mark.parametrize("command", [*LINES, "FLY"])
def test_before_a_key_nothing_is_done(client: LineClient, command: str) -> None:
    refused = ("BAD_REQUEST", "show a key first: V1|<id>|AUTH|<key>")
    assert client.refused(command, "shop.orders k:v") == refused
    assert client.refused("AUTH", "wrong-key") == ("BAD_REQUEST", "this key is not known here")
    assert client.refused("AUTH", "") == ("BAD_REQUEST", "this key is not known here")
    assert client.refused(command, "shop.orders k:v") == refused
    assert client.ok("AUTH", "root-key") == ""
    assert client.refused("FLY", "")[0] == "UNKNOWN_COMMAND"


def test_a_pipeline_may_begin_with_its_key(client: LineClient) -> None:
    client.send(b"V1|a|auth|root-key\r\nV1|b|OFFSET|g.3 other 0\r\n")
    assert [client.read(), client.read()] == [b"V1|a|OK\n", b"V1|b|OK|offset=0\n"]


def test_a_wrong_key_later_leaves_the_one_before(client: LineClient) -> None:
    client.ok("AUTH", "reader-key")
    client.refused("AUTH", "wrong-key")
    assert client.ok("CONSUME", "other 0 0").startswith("messages=")


@pytest.mark.parametrize("first", ["POST / HTTP/1.1", "", "AUTH|root-key", "x" * 9000])
def test_a_key_is_not_even_looked_at_behind_a_line_that_is_no_envelope(
    client: LineClient, server: ServerProcess, first: str
) -> None:
    client.send(f"{first}\r\n\r\nV1|1|AUTH|root-key\nV1|2|PRODUCE|forged k:v\n".encode())
    replies = []
    try:
        while reply := client.read():
            replies.append(reply)
    except ConnectionError:
        pass
    assert all(reply.startswith(b"V1|0|ERR|BAD_REQUEST|a request is") for reply in replies)
    assert len(replies) <= 1
    with open_client(server.url, key="root-key") as api:
        assert api.get("/v0/topics/forged").status_code == 404


def test_a_stranger_sends_no_long_lines_and_gains_no_time_by_talking(client: LineClient) -> None:
    client.send(b"V1|9|AUTH|" + b"x" * 10_000 + b"\n")
    assert client.read() == b"V1|9|ERR|BAD_REQUEST|a line may have 4096 bytes\n"
    heard = 0
    try:
        while client.ask("V1|1|OFFSET|g t 0"):
            heard += 1
    except (AssertionError, ConnectionError):
        pass  # it was hung up on
    assert heard > 0
    with LineClient(PORT) as other:
        other.ok("AUTH", "root-key")


def test_no_key_is_in_the_log_or_in_a_reply(client: LineClient, server: ServerProcess) -> None:
    for line in ("V1|1|AUTH|guessed-secret", "V1|1|AUTH|root-key", "AUTH|another-secret"):
        assert "secret" not in client.ask(line)
    assert "secret" not in server.said
    assert "root-key" not in server.said
