"""`CONSUME`: what a partition holds from an offset on.

An offset is `seq - 1`, so reading from offset O is a read behind seq O.
Keeps: a reply is bounded; loss is never silent: an offset that is gone, or was never there, is an
error that names where reading can go on.
"""

import asyncio
from collections.abc import Iterator

from topics.broker.arguments import parse_consume
from topics.broker.desk import READ, Caller, Desk, authorize
from topics.broker.line import encode_value
from topics.errors import RequestError
from topics.limits import MIB
from topics.model.diff import Page
from topics.model.json_text import has_utf8

MAX_REPLY_RECORDS = 1_000
MAX_REPLY_BYTES = MIB


async def consume(desk: Desk, caller: Caller, args: str) -> str:
    wanted = parse_consume(args)
    authorize(caller, READ, wanted.topic)
    topic = desk.partition(wanted.topic, wanted.partition)
    if wanted.offset > topic.head_seq:
        raise RequestError(
            f"offset {wanted.offset} is beyond the end: the next is {topic.head_seq}"
        )
    page = await _read(desk, topic.name, wanted.offset)
    return f"messages={format_messages(page)}"


async def _read(desk: Desk, topic: str, from_seq: int) -> Page:
    """Read on past deleted records: an empty answer would say that there is no more."""
    while True:
        page = await desk.log.diff(
            topic,
            from_seq=from_seq,
            limit=MAX_REPLY_RECORDS,
            include_tags=False,
            include_meta=False,
            max_batch_bytes=MAX_REPLY_BYTES,
        )
        if lost := page.tombstone:
            raise RequestError(
                f"offset {lost.gap_from - 1} is no longer there ({lost.reason}): "
                f"go on at {lost.gap_to}"
            )
        if page.count or page.caught_up:
            return page
        from_seq = page.next_from_seq
        await asyncio.sleep(0)


def format_messages(page: Page) -> str:
    """Return `o:v,o:v`, as many as fit a reply, and one at least."""
    found: list[str] = []
    room_bytes = MAX_REPLY_BYTES
    for seq, text in _texts(page):
        message = f"{seq - 1}:{encode_value(text)}"
        room_bytes -= len(message.encode()) + 1
        if room_bytes < 0 and found:
            break
        found.append(message)
    return ",".join(found)


def _texts(page: Page) -> Iterator[tuple[int, str]]:
    """Yield what was produced; data that is no text, or none of UTF-8, shows as its JSON."""
    for record in page.records:
        data = record.data
        is_text = isinstance(data, str) and has_utf8(data)
        yield record.seq, data if is_text else bytes(record.data_json).decode()
