"""The same bytes to many sockets."""

import os
from array import array

from topics.kernel.layout import Buffer


def send_all(descriptors: "array[int]", data: Buffer) -> list[tuple[int, int]]:
    """Send to each of these sockets, which do not block, once; sockets are no disk.

    Returns who did not take all of it, by index, and how much they took. What is wrong with a
    descriptor is not told: whoever writes the rest to it finds out.
    """
    if getattr(descriptors, "typecode", "") != "i":
        raise TypeError("descriptors are an array of type i")
    short = []
    for index, descriptor in enumerate(descriptors):
        try:
            sent = os.write(descriptor, data)
        except OSError:
            sent = 0
        if sent < len(data):
            short.append((index, sent))
    return short
