"""Servers in a few milliseconds: a template process that has imported everything forks them.

`python -m topics.testing.fork_server FD` is the template. Over the socket FD it gets one message a
server: the settings as JSON, and with it a socket of the server's own. On that one the server says
`ready PORT` or `failed WHY`, and takes orders: `disk_full` and `disk_free`. A server outlives the
template and is told or killed by its process id, which the template answers.
Keeps: the template has one thread and no open log, so that a fork is a clean copy.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

import msgspec

from topics.api.auth import parse_keys
from topics.api.server import Server, serve
from topics.config import ServerConfig
from topics.errors import FileMissing, TopicsError
from topics.storage.disk import paths
from topics.storage.disk.local_disk import LocalDisk
from topics.testing.full_disk import FullDisk

MESSAGE_BYTES = 1 << 16


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One server to start."""

    config: ServerConfig
    keys: str = ""
    stderr_path: str


def run_template(asked: socket.socket) -> None:
    """Fork a server for each order, until nobody is left to order one."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whoever ends is gone at once
    while True:
        message, fds, _, _ = socket.recv_fds(asked, MESSAGE_BYTES, 1)
        if not message:
            return
        child = os.fork()
        if child == 0:
            asked.close()
            _serve_and_exit(msgspec.json.decode(message, type=Order), socket.socket(fileno=fds[0]))
        os.close(fds[0])
        asked.sendall(b"%d\n" % child)


def _serve_and_exit(order: Order, told: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()  # Ctrl-C is for the test alone
    log = os.open(order.stderr_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    status = 0
    try:
        _run(order, told)
    except TopicsError as error:
        told.sendall(f"failed {error}\n".encode())
        status = 1
    finally:
        # Not sys.exit: what the template would do at its end is not ours to do.
        os._exit(status)


def _run(order: Order, told: socket.socket) -> None:
    disk = FullDisk(LocalDisk(order.config.data_dir))

    def on_ready(server: Server) -> None:
        told.setblocking(False)  # noqa: FBT003 - the name of the call says it
        server.app.loop.add_reader(told, _take_order, server, disk, told)
        told.send(b"ready %d\n" % server.port)

    def write_log(line: str) -> None:
        sys.stderr.write(line)
        sys.stderr.flush()

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(
            serve(
                order.config,
                parse_keys(order.keys),
                write_log=write_log,
                on_listening=lambda _: None,
                on_ready=on_ready,
                disk=disk,
            )
        )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


def _take_order(server: Server, disk: FullDisk, told: socket.socket) -> None:
    try:
        said = told.recv(MESSAGE_BYTES).split()
    except BlockingIOError:
        return
    if not said:
        server.app.loop.remove_reader(told)
    for order in said:
        disk.full = order == b"disk_full"
        if disk.full:
            _use_up_wal(server, disk)
        told.send(b"done\n")


def _use_up_wal(server: Server, disk: FullDisk) -> None:
    """Let the very next write need room: the log has some of its own ahead."""
    for shard in server.app.engine.shards:
        with shard.lock:
            with suppress(FileMissing):
                disk.unlink(f"{shard.directory}/{paths.SPARE_WAL}")
            shard.commit.log.end_file()


if __name__ == "__main__":
    run_template(socket.socket(fileno=int(sys.argv[1])))
