"""A TCP proxy on the loopback interface whose connections can all be cut at once."""

import contextlib
import socket
import threading
from functools import partial
from typing import Self

CHUNK_BYTES = 65_536


class CuttableProxy:
    """Passes bytes both ways until told otherwise."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """End every connection as a broken network does."""
        with self._lock:
            cut, self._open = self._open, []
        for end in cut:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        self.cut()
        for thread in self._threads[1:]:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._to))
            with self._lock:
                self._open += [near, far]
            closing = threading.Barrier(2, action=partial(_close, (near, far)))
            for source, sink in ((near, far), (far, near)):
                thread = threading.Thread(target=_pump, args=(source, sink, closing))
                self._threads.append(thread)
                thread.start()


def _pump(source: socket.socket, sink: socket.socket, closing: threading.Barrier) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(CHUNK_BYTES):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    closing.wait()


def _close(ends: tuple[socket.socket, socket.socket]) -> None:
    for end in ends:
        end.close()
