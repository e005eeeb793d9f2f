"""The same bytes to many sockets, or to each its own."""

import socket
from array import array
from collections.abc import Sequence
from operator import index
from typing import Any

from topics.kernel.layout import Buffer
from topics.kernel.pure.answers import format_answers


def send_all(descriptors: "array[int]", data: Buffer) -> list[tuple[int, int]]:
    """Send to each of these sockets, which do not block, once.

    Returns who did not take all of it, by index, and how much they took. What is wrong with a
    descriptor is not told: whoever writes the rest to it finds out.
    """
    if getattr(descriptors, "typecode", "") != "i":
        raise TypeError("descriptors are an array of type i")
    view = memoryview(data)
    sent = [_send(descriptor, view) for descriptor in descriptors]
    return [(i, taken) for i, taken in enumerate(sent) if taken < len(view)]


def send_each(packets: Sequence[tuple[int, bytes]]) -> list[tuple[int, int]]:
    """Send to each of these sockets, which do not block, its own bytes, once.

    Returns the same as `send_all`.
    """
    for packet in packets:
        if not isinstance(packet, tuple):
            raise TypeError("a packet is a tuple of a descriptor and bytes")
        descriptor, data = packet
        if not -(1 << 31) <= index(descriptor) < 1 << 31:
            raise OverflowError("a descriptor has 32 bits")
        if not isinstance(data, bytes):
            raise TypeError("what is sent are bytes")
    sent = [_send(descriptor, memoryview(data)) for descriptor, data in packets]
    sizes = [len(data) for _, data in packets]
    return [
        (i, taken) for i, (taken, size) in enumerate(zip(sent, sizes, strict=True)) if taken < size
    ]


def send_answers(
    writers: list[tuple[int, tuple[Any, object]]],
    *,
    first_seq: int,
    start: bytes,
    middle: bytes,
    end: bytes,
    head_end: bytes,
) -> list[tuple[Any, bytes]]:
    """Send each of these writers what `format_answers` has for it, behind a head of HTTP/1.1.

    A writer has a `descriptor`; `head_end` goes behind what every head begins with. Returns who
    did not take all of it, with the rest.
    """
    bodies = format_answers(writers, first_seq=first_seq, start=start, middle=middle, end=end)
    packets = [
        (
            who.descriptor,
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b%b"
            % (len(body), head_end, body),
        )
        for (_, (who, _)), body in zip(writers, bodies, strict=True)
    ]
    return [(writers[i][1][0], packets[i][1][taken:]) for i, taken in send_each(packets)]


def _send(descriptor: int, data: memoryview) -> int:
    try:
        borrowed = socket.socket(fileno=descriptor)
    except (OSError, ValueError):
        return 0
    try:
        return borrowed.send(data)
    except OSError:
        return 0
    finally:
        borrowed.detach()
