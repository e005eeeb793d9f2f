"""The same bytes to many sockets."""

import socket
from array import array

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
    return [(index, taken) for index, taken in enumerate(sent) if taken < len(view)]


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
