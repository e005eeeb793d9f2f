"""The append handler as an ASGI app: what the server would be on a ready-made HTTP server.

Run by uvicorn and granian; the environment names the data directory.
"""

import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from topics.aio import AsyncLog

DATA_DIR = "BENCH_DATA_DIR"
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
HEADERS = [(b"content-type", b"application/json")]


class AppendApp:
    """One log, opened and closed by the lifespan of the server."""

    log: AsyncLog

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.live(receive, send)
        elif scope["method"] == "DELETE":
            deleted = await self.log.drop(_topic(scope))
            await _reply(send, {"deleted": deleted})
        else:
            await self.append(scope, receive, send)

    async def live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.log = await AsyncLog.open(os.environ[DATA_DIR])
            else:
                await self.log.close()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    async def append(self, scope: Message, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        done = await self.log.append_json(_topic(scope), await _body(receive))
        total_ms = (time.perf_counter() - started) * 1000
        await _reply(
            send,
            {
                "topic": done.topic,
                "first_seq": done.first_seq,
                "last_seq": done.last_seq,
                "seqs": done.seqs,
                "head_seq": done.head_seq,
                "count": done.count,
                "created": done.created,
                "deduped": done.deduped,
                "performance": {
                    "server_total_ms": round(total_ms, 3),
                    "wal_append_ms": 0.0,
                    "fsync_ms": 0.0,
                },
            },
        )


def _topic(scope: Message) -> str:
    path: str = scope["path"]
    return path.rsplit("/", 1)[1]


async def _body(receive: Receive) -> bytes:
    message = await receive()
    body: bytes = message["body"]
    while message.get("more_body"):
        message = await receive()
        body += message["body"]
    return body


async def _reply(send: Send, answer: Message) -> None:
    body = msgspec.json.encode(answer)
    headers = [*HEADERS, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


app = AppendApp()
