"""A long list of segments, read a slice at a time."""

import asyncio

import msgspec
import pytest
from tests.unit.api.wire import HeldApp, connect, post

from topics.api import uploads
from topics.api.exchange import Exchange
from topics.errors import RequestError
from topics.model.uploads import AttachBody, BuiltSegment

COUNT = 5_000
SEGMENTS = [
    BuiltSegment(first_seq=n, last_seq=n, bytes=1, xxh3_data=f"{n:016x}", xxh3_idx="0" * 16)
    for n in range(COUNT)
]
BODY = msgspec.json.encode(AttachBody(segments=SEGMENTS))


def asked(app: HeldApp, body: bytes) -> Exchange:
    connection, _ = connect(app)
    connection.data_received(post("/v0/uploads/u/attach", body))
    return app.held.pop()


def test_a_long_list_is_read_whole_and_not_at_once(
    app: HeldApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    decode = uploads._DECODE_SEGMENTS

    def count(piece: bytes) -> list[BuiltSegment]:
        sizes.append(len(piece))
        return decode(piece)

    monkeypatch.setattr(uploads, "_DECODE_SEGMENTS", count)
    spaced = BODY.replace(b"},{", b"} ,\n{")
    for body in (BODY, spaced):
        assert asyncio.run(uploads._read_segments(asked(app, body))) == SEGMENTS
    assert len(sizes) > 2 * len(BODY) // uploads.SLICE_BYTES
    assert max(sizes) <= uploads.SLICE_BYTES + uploads.ROOM_BYTES


@pytest.mark.parametrize(
    "body",
    [
        BODY.replace(b"},{", b"}{"),
        BODY[:-2] + b",]}",
        BODY[:-2],
        BODY[:-1] + b',"more":1}',
        BODY[:-1] + b"}}",
        BODY[:-2] + b',{"first_seq":1}]}',
        b'{"segments":[%b]}' % (b" " * len(BODY)) + b"x",
        b'{"segments":["%b"]}' % (b"x" * len(BODY)),
        b'{"segments":[%b]}' % (b"[" * len(BODY)),
        b"[" * len(BODY),
        b"{" * len(BODY),
        b"\xff" * len(BODY),
    ],
)
def test_a_long_list_that_is_wrong_anywhere_is_refused(app: HeldApp, body: bytes) -> None:
    with pytest.raises(RequestError):
        asyncio.run(uploads._read_segments(asked(app, body)))
