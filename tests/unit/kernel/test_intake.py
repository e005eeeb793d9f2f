"""Whole small writes off many sockets: what is gathered, and what comes back as it was sent."""

import select
import socket
from collections.abc import Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest

Pair = tuple[socket.socket, socket.socket]
BODY = b'{"records":[{"data":1}]}'
TWO = b'{"records":[{"data":1},{"data":2}]}'
LIMITS = {
    "max_bytes": 65536,
    "max_records": 10_000,
    "max_record_bytes": 65536,
    "max_meta_bytes": 1024,
    "max_tag_bytes": 256,
    "max_node_bytes": 128,
}


def head(body: bytes, topic: bytes = b"a") -> bytes:
    return b"POST /v0/topics/%b HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (topic, len(body))


def request(body: bytes, topic: bytes = b"a") -> bytes:
    return head(body, topic) + body


class Desk:
    """An intake with some members, and one gathering for all that it may take."""

    def __init__(self, twin: ModuleType, pairs: list[Pair]) -> None:
        self.intake = twin.Intake()
        self.gathering = twin.Gathering(**LIMITS)
        self.writers: list[Any] = []
        self.asked: list[bytes] = []
        self.max_records = 1 << 31
        self.token = "token"
        for number, (mine, _) in enumerate(pairs):
            self.intake.join(mine.fileno(), number)

    def find(self, raw: bytes) -> Any:  # noqa: ANN401 - what the kernel unpacks
        self.asked.append(raw)
        if b"/v0/topics/a " not in raw:
            return None
        size = int(raw.partition(b"Content-Length: ")[2])
        return self.token, size, self.max_records, self.gathering, self.writers

    def take(self) -> dict[int, bytes]:
        others = self.intake.take(self.find)
        assert len(others) == len(dict(others))  # one read from each
        return dict(others)

    @property
    def gathered(self) -> list[tuple[int, int]]:
        """Return how many records came from whom, in the order of who."""
        assert {token for _, (_, token) in self.writers} <= {self.token}
        return sorted((who, count) for count, (who, _) in self.writers)


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    made = [socket.socketpair() for _ in range(6)]
    for mine, peer in made:
        mine.settimeout(0)
        peer.settimeout(5)
    yield made
    for mine, peer in made:
        mine.close()
        peer.close()


def test_whole_writes_are_gathered_with_who_sent_them(twin: ModuleType, pairs: list[Pair]) -> None:
    desk = Desk(twin, pairs)
    for number, body in ((0, BODY), (1, TWO), (4, BODY)):
        pairs[number][1].sendall(request(body))
    assert desk.take() == {}
    assert desk.gathered == [(0, 1), (1, 2), (4, 1)]
    batch = desk.gathering.take()
    assert batch.count == 4
    assert batch.frames.count(b"1") >= 3
    assert desk.take() == {}  # nothing is taken twice
    assert len(desk.writers) == 3


def test_each_write_is_noted_as_it_is_though_most_repeat_the_one_before(
    twin: ModuleType, pairs: list[Pair]
) -> None:
    desk = Desk(twin, pairs[:1])
    mine, peer = pairs[0]
    for body, token, who in (
        (BODY, "a", 0), (BODY, "a", 0), (BODY, "b", 0), (TWO, "b", 0), (TWO, "b", 5)
    ):  # fmt: skip
        if who:
            desk.intake.leave(mine.fileno())
            desk.intake.join(mine.fileno(), who)
        desk.token = token
        peer.sendall(request(body))
        assert desk.take() == {}
        assert desk.writers.pop() == (body.count(b"data"), (who, token))


def test_each_head_is_asked_for_once_a_call(twin: ModuleType, pairs: list[Pair]) -> None:
    desk = Desk(twin, pairs)
    for round_ in (1, 2):
        for number in range(4):
            pairs[number][1].sendall(request(BODY if number % 2 else TWO))
        assert desk.take() == {}
        assert sorted(desk.asked) == sorted([head(BODY), head(TWO)] * round_)


def test_a_head_that_nobody_knows_is_asked_for_once_too(
    twin: ModuleType, pairs: list[Pair]
) -> None:
    desk = Desk(twin, pairs)
    unknown = request(BODY, b"b")
    for number in range(3):
        pairs[number][1].sendall(unknown)
    assert desk.take() == dict.fromkeys(range(3), unknown)
    assert desk.asked == [head(BODY, b"b")]
    assert desk.writers == []


@pytest.mark.parametrize(
    "sent",
    [
        b"P",
        head(BODY),
        request(BODY)[:-1],
        request(BODY) + b"P",
        request(BODY) * 2,
        request(BODY) + b"\r\n",  # as old clients do
        request(BODY + b"\r\n")[:-2],  # whole as JSON, not as a request
        request(b'{"records":[]}'),
        request(b'{"records":[{"data":1}],"create":true}'),
        request(b""),
        b"\r\n\r\n",
        b"\0" * 100,
        request(b'{"records":[{"data":"%b"}]}' % (b"x" * 65536)),
    ],
)
def test_whatever_else_comes_back_as_it_was_sent(
    twin: ModuleType, pairs: list[Pair], sent: bytes
) -> None:
    desk = Desk(twin, pairs)
    pairs[1][1].sendall(request(BODY))
    pairs[2][1].sendall(sent)
    pairs[3][1].sendall(request(BODY))
    assert desk.take() == {2: sent}
    assert desk.gathered == [(1, 1), (3, 1)]
    assert desk.gathering.take().count == 2


def test_a_long_request_comes_back_in_pieces_and_whole(twin: ModuleType, pairs: list[Pair]) -> None:
    desk = Desk(twin, pairs)
    sent = request(b'{"records":[{"data":"%b"}]}' % (b"x" * 200_000))
    peer, came = pairs[0][1], b""
    peer.settimeout(0)
    left = memoryview(sent)
    for _ in range(1000):  # far more than it takes
        with suppress(BlockingIOError):
            left = left[peer.send(left) :] if left else left
        piece = desk.take().get(0, b"")
        assert len(piece) <= 80 * 1024
        came += piece
    assert came == sent
    assert desk.writers == []


def test_more_records_than_were_asked_for_come_back(twin: ModuleType, pairs: list[Pair]) -> None:
    desk = Desk(twin, pairs)
    desk.max_records = 1
    pairs[0][1].sendall(request(TWO))
    pairs[1][1].sendall(request(BODY))
    assert desk.take() == {0: request(TWO)}
    assert desk.gathered == [(1, 1)]


@pytest.mark.parametrize("sent", [[], [(0, 1)]])
def test_who_has_gone_comes_back_with_nothing(
    twin: ModuleType, pairs: list[Pair], sent: list[tuple[int, int]]
) -> None:
    desk = Desk(twin, pairs)
    for number, _ in sent:
        pairs[number][1].sendall(request(BODY))
    pairs[0][1].close()
    if sent:
        assert desk.take() == {}
    assert desk.gathered == sent
    assert desk.take() == {0: b""}
    assert desk.take() == {0: b""}  # until it leaves
    desk.intake.leave(pairs[0][0].fileno())
    assert desk.take() == {}


def test_a_reset_is_an_end_too(twin: ModuleType) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = socket.create_connection(listener.getsockname())
        mine, _ = listener.accept()
    with mine:
        desk = Desk(twin, [(mine, peer)])
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.close()
        assert desk.take() == {0: b""}


def test_who_has_left_is_not_read_from(twin: ModuleType, pairs: list[Pair]) -> None:
    desk = Desk(twin, pairs)
    mine, peer = pairs[0]
    peer.sendall(request(BODY))
    for _ in range(2):  # twice does no harm
        desk.intake.leave(mine.fileno())
    assert desk.take() == {}
    assert desk.writers == []
    assert mine.recv(1000) == request(BODY)
    desk.intake.join(mine.fileno(), 7)
    peer.sendall(request(TWO))
    assert desk.take() == {}
    assert desk.gathered == [(7, 2)]


@pytest.mark.parametrize("descriptor", [-1, 1_000_000])
def test_nobody_leaves_who_never_joined(twin: ModuleType, descriptor: int) -> None:
    twin.Intake().leave(descriptor)


@pytest.mark.parametrize("descriptor", [-1, 1_000_000])
def test_only_an_open_socket_can_join(twin: ModuleType, descriptor: int) -> None:
    with pytest.raises(OSError, match=r"Bad file descriptor|cannot be waited for"):
        twin.Intake().join(descriptor, "who")


def test_nobody_is_not_somebody(twin: ModuleType, pairs: list[Pair]) -> None:
    with pytest.raises(ValueError, match="nobody"):
        twin.Intake().join(pairs[0][0].fileno(), None)


def test_it_can_be_waited_for(twin: ModuleType, pairs: list[Pair]) -> None:
    desk = Desk(twin, pairs)
    waiting = select.poll()
    waiting.register(desk.intake.fileno(), select.POLLIN)
    assert waiting.poll(0) == []
    pairs[3][1].sendall(request(BODY))
    assert waiting.poll(0) != []
    desk.take()
    assert waiting.poll(0) == []


def test_it_tells_once_who_was_active(twin: ModuleType, pairs: list[Pair]) -> None:
    desk = Desk(twin, pairs)
    one, other = pairs[0][0].fileno(), pairs[1][0].fileno()
    assert desk.intake.was_active(one)  # it has just joined
    assert desk.intake.was_active(other)
    pairs[0][1].sendall(request(BODY))
    desk.take()
    assert desk.intake.was_active(one)
    assert not desk.intake.was_active(one)
    assert not desk.intake.was_active(other)
    assert not desk.intake.was_active(-1)
    assert not desk.intake.was_active(1_000_000)


def test_a_full_gathering_takes_no_more(twin: ModuleType, pairs: list[Pair]) -> None:
    desk = Desk(twin, pairs)
    large = request(b'{"records":[{"data":"%b"}]}' % (b"x" * 60_000))
    came = 0
    for _ in range(100):
        pairs[0][1].sendall(large)
        others = desk.take()
        came += len(others)
        assert others in ({}, {0: large})
    assert came > 0
    assert len(desk.writers) == 100 - came
    assert len(desk.gathering.take().frames) <= 4 << 20


def test_a_member_in_the_way_of_another_is_found_by_its_own_socket(
    twin: ModuleType, pairs: list[Pair]
) -> None:
    desk = Desk(twin, [])
    for number in (5, 0, 3):  # in no order
        desk.intake.join(pairs[number][0].fileno(), number)
    for number in range(6):
        pairs[number][1].sendall(request(BODY))
    assert desk.take() == {}
    assert desk.gathered == [(0, 1), (3, 1), (5, 1)]
