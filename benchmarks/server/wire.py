"""The exact bytes of every request, in the three protocols; the same payloads for all.

The load driver replaces `@@@@` by the number of the connection and FIELD by a seq.
"""

import json
from collections.abc import Iterable

from benchmarks.engine.payloads import body, record

FIELD = "#" * 20
STREAM = "bench"
NATS_HELLO = (
    b'CONNECT {"verbose":false,"pedantic":false,"lang":"bench","version":"1"}\r\n'
    b"SUB _INBOX.@@@@.* 1\r\nPING\r\n"
)


def http(method: str, path: str, content: bytes = b"") -> bytes:
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def http_append(topic: str, *, count: int) -> bytes:
    return http("POST", f"/v0/topics/{topic}", body(count=count))


def http_diff(topic: str, *, from_seq: int, limit: int) -> bytes:
    content = json.dumps({"from_seq": from_seq, "limit": limit}).encode()
    return http("POST", f"/v0/topics/{topic}/diff", content)


def http_claim(topic: str, *, count: int) -> bytes:
    content = json.dumps({"node": "worker-@@@@", "max": count}).encode()
    return http("POST", f"/v0/topics/{topic}/claim", content)


def http_ack(topic: str, *, count: int) -> bytes:
    """Return an ack with room for so many seqs; a seq in it is padded with blanks."""
    seqs = ",".join([FIELD] * count)
    content = f'{{"node":"worker-@@@@","seqs":[{seqs}]}}'.encode()
    return http("POST", f"/v0/topics/{topic}/ack", content)


def payload(number: int) -> bytes:
    """Return the `data` of a record: what a peer without our envelope has to keep."""
    return record(number)[len(b'{"data":') : -1]


def resp(*words: bytes) -> bytes:
    parts = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
    return b"*%d\r\n%s" % (len(words), parts)


def resp_append(ids: Iterable[bytes]) -> bytes:
    """Return one XADD an id, pipelined."""
    return b"".join(
        resp(b"XADD", STREAM.encode(), name, b"data", payload(number))
        for number, name in enumerate(ids)
    )


def resp_page(*, first: int, limit: int) -> bytes:
    return resp(b"XRANGE", STREAM.encode(), b"%d" % first, b"+", b"COUNT", b"%d" % limit)


def nats_publish(*, count: int) -> bytes:
    """Return so many publishes, each asking for the ack of the stream."""
    contents = (payload(number) for number in range(count))
    return b"".join(
        b"PUB %s _INBOX.@@@@.1 %d\r\n%s\r\n" % (STREAM.encode(), len(content), content)
        for content in contents
    )
