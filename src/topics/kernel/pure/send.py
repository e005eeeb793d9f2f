"""The same bytes to many sockets, or to each its own."""

import socket
from array import array
from collections.abc import Sequence
from operator import index

from topics.kernel.layout import Buffer


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
