"""The same bytes to many sockets, or to each its own: who took how much, in whatever state."""

import socket
from array import array
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    made = [socket.socketpair() for _ in range(40)]  # more than are sent to with the GIL
    for mine, peer in made:
        mine.settimeout(0)
        peer.settimeout(0)
    yield made
    for mine, peer in made:
        mine.close()
        peer.close()


def descriptors(pairs: list[Pair]) -> "array[int]":
    return array("i", [mine.fileno() for mine, _ in pairs])


@pytest.mark.parametrize("count", [0, 1, 15, 16, 40])
def test_each_gets_the_bytes_once(twin: ModuleType, pairs: list[Pair], count: int) -> None:
    assert twin.send_all(descriptors(pairs[:count]), b"news") == []
    assert [peer.recv(100) for _, peer in pairs[:count]] == [b"news"] * count
    for _, peer in pairs:
        with pytest.raises(BlockingIOError):
            peer.recv(1)


@pytest.mark.parametrize("count", [5, 40])
def test_who_does_not_take_all_is_told_with_how_much(
    twin: ModuleType, pairs: list[Pair], count: int
) -> None:
    some = pairs[:count]
    full, closed = some[1], some[3]
    before = 0
    while True:
        try:
            before += full[0].send(b"x" * 10_000)
        except BlockingIOError:
            break
    taken = len(full[1].recv(5_000))
    closed[1].close()
    data = b"y" * 100_000
    short = dict(twin.send_all(descriptors(some), data))
    assert set(short) == {1, 3}
    assert short[3] == 0
    assert short[1] < len(data)
    came = b""
    while len(came) < before - taken + short[1]:
        came += full[1].recv(1 << 20)
    assert came == b"x" * (before - taken) + b"y" * short[1]
    with pytest.raises(BlockingIOError):
        full[1].recv(1)
    assert all(
        len(peer.recv(1 << 20)) == len(data) for n, (_, peer) in enumerate(some) if n not in short
    )


def test_a_descriptor_that_is_none_takes_nothing(twin: ModuleType, pairs: list[Pair]) -> None:
    wanted = descriptors(pairs[:1]) + array("i", [-1, 1_000_000])
    assert twin.send_all(wanted, b"news") == [(1, 0), (2, 0)]
    assert pairs[0][1].recv(100) == b"news"


def test_nothing_is_sent_to_nobody(twin: ModuleType, pairs: list[Pair]) -> None:
    assert twin.send_all(descriptors(pairs[:2]), b"") == []


@pytest.mark.parametrize(
    ("wanted", "data"),
    [([1], b"x"), (array("q", [1]), b"x"), (b"\0\0\0\0", b"x"), (array("i", [-1]), "x")],
)
def test_what_cannot_be_sent_is_refused(twin: ModuleType, wanted: Any, data: Any) -> None:  # noqa: ANN401 - that is the point
    with pytest.raises(TypeError):
        twin.send_all(wanted, data)


def packets(pairs: list[Pair]) -> list[tuple[int, bytes]]:
    return [(mine.fileno(), b"news %d" % n) for n, (mine, _) in enumerate(pairs)]


@pytest.mark.parametrize("count", [0, 1, 15, 16, 40])
def test_each_gets_its_own_bytes_once(twin: ModuleType, pairs: list[Pair], count: int) -> None:
    assert twin.send_each(packets(pairs[:count])) == []
    assert [peer.recv(100) for _, peer in pairs[:count]] == [b"news %d" % n for n in range(count)]
    for _, peer in pairs:
        with pytest.raises(BlockingIOError):
            peer.recv(1)


@pytest.mark.parametrize("count", [5, 40])
def test_who_does_not_take_all_of_its_own_is_told(
    twin: ModuleType, pairs: list[Pair], count: int
) -> None:
    wanted = packets(pairs[:count])
    pairs[2][1].close()
    large = b"y" * 50_000_000
    wanted[3] = (wanted[3][0], large)
    wanted[4] = (-1, b"news")
    short = dict(twin.send_each(wanted))
    assert set(short) == {2, 3, 4}
    assert (short[2], short[4]) == (0, 0)
    assert 0 < short[3] < len(large)
    taken = 0
    while taken < short[3]:
        taken += len(pairs[3][1].recv(1 << 20))
    with pytest.raises(BlockingIOError):
        pairs[3][1].recv(1)


@pytest.mark.parametrize(
    "wanted",
    [
        [(-1, bytearray(b"x"))],
        [(-1, None)],
        [(-1, "x")],
        [("1", b"x")],
        [(1.5, b"x")],
        [[-1, b"x"]],
        [None],
        [7],
        7,
    ],
)
def test_packets_that_cannot_be_sent_are_refused(twin: ModuleType, wanted: Any) -> None:  # noqa: ANN401 - that is the point
    with pytest.raises(TypeError):
        twin.send_each(wanted)


def test_nothing_was_sent_where_one_packet_is_refused(twin: ModuleType, pairs: list[Pair]) -> None:
    with pytest.raises(TypeError):
        twin.send_each([*packets(pairs[:1]), (1, "x")])
    with pytest.raises(BlockingIOError):
        pairs[0][1].recv(1)


@pytest.mark.parametrize("descriptor", [2**31, -(2**31) - 1, 2**70])
def test_a_descriptor_has_32_bits(twin: ModuleType, descriptor: int) -> None:
    with pytest.raises(OverflowError):
        twin.send_each([(descriptor, b"x")])


class Writer:
    """Someone who can be answered."""

    def __init__(self, pair: Pair) -> None:
        self.descriptor = pair[0].fileno()


PARTS: dict[str, bytes] = {
    "start": b'{"first_seq":',
    "middle": b',"count":',
    "end": b"}",
    "head_end": b"Date: now\r\n\r\n",
}


@pytest.mark.parametrize("count", [0, 1, 15, 16, 40])
def test_each_writer_is_answered_over_its_socket(
    twin: ModuleType, pairs: list[Pair], count: int
) -> None:
    writers = [(n % 3 + 1, (Writer(pair), "token")) for n, pair in enumerate(pairs[:count])]
    assert twin.send_answers(writers, first_seq=98, **PARTS) == []
    bodies = twin.format_answers(
        writers, first_seq=98, **{name: PARTS[name] for name in ("start", "middle", "end")}
    )
    for (_, peer), body in zip(pairs, bodies, strict=False):
        assert peer.recv(1000) == (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\nDate: now\r\n\r\n%b" % (len(body), body)
        )
    for _, peer in pairs:
        with pytest.raises(BlockingIOError):
            peer.recv(1)


@pytest.mark.parametrize("count", [4, 40])
def test_a_writer_who_does_not_take_all_is_told_with_the_rest(
    twin: ModuleType, pairs: list[Pair], count: int
) -> None:
    writers = [(1, (Writer(pair), None)) for pair in pairs[:count]]
    writers[1] = (1_000_000, writers[1][1])  # more than fits a socket
    pairs[2][1].close()
    lost = writers[3][1][0]
    lost.descriptor = -1
    short = dict(twin.send_answers(writers, first_seq=1, **PARTS))
    assert set(short) == {writers[n][1][0] for n in (1, 2, 3)}
    assert short[lost].startswith(b"HTTP/1.1 200 OK\r\n")
    assert short[lost].endswith(b'"count":1}')
    rest = short[writers[1][1][0]]
    came = b""
    while not came.endswith(b'"count":1000000}'):
        try:
            came += pairs[1][1].recv(1 << 20)
        except BlockingIOError:
            came += rest
    assert came.count(b",") == 1_000_001 + 1  # between the fields, and between the seqs
    head, _, body = came.partition(b"\r\n\r\n")
    assert b"Content-Length: %d\r\n" % len(body) in head


@pytest.mark.parametrize(
    ("writers", "first_seq", "error"),
    [
        ([(0, ("who", None))], 1, ValueError),
        ([(2, ("who", None))], 2**64 - 1, OverflowError),
        ([(1, "who")], 1, ValueError),
        ([(1, ("who", None))], 1, AttributeError),
        (None, 1, TypeError),
        ([7], 1, TypeError),
    ],
)
def test_answers_that_cannot_be_given_are_refused(
    twin: ModuleType,
    writers: Any,  # noqa: ANN401 - that is the point
    first_seq: int,
    error: type[Exception],
) -> None:
    with pytest.raises(error):
        twin.send_answers(writers, first_seq=first_seq, **PARTS)


def test_a_writer_may_stand_in_lists(twin: ModuleType, pairs: list[Pair]) -> None:
    assert twin.send_answers([[1, [Writer(pairs[0]), None]]], first_seq=5, **PARTS) == []
    assert pairs[0][1].recv(1000).endswith(b'"seqs":[5],"count":1}')
