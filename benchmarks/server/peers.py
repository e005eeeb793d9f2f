"""Every server that is measured, with its settings.

A peer keeps its files on the same real disk as the data directory of `topics`. One that is not
there is installed from Debian when we may, else left out, with the reason. Debian's nats-server is
of 2022, and cannot sync before it answers: a new one is built by Go where that is there, too.
"""

import importlib.util
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks.server import control
from benchmarks.server.asgi_app import DATA_DIR
from benchmarks.server.errors import CannotMeasure
from benchmarks.server.load import Tools, fixed_reply
from benchmarks.server.processes import Peer, free_port, go_program, program, running

Start = Callable[[Path, Tools, ExitStack], Peer]
NATS_MODULE = "github.com/nats-io/nats-server/v2@v2.15.2"


def start_topics(folder: Path, _tools: Tools, stack: ExitStack) -> Peer:
    port = free_port()
    command = [sys.executable, "-m", "topics", "serve", "--data-dir", str(folder / "data")]
    command += ["--port", str(port)]
    peer = stack.enter_context(running("topics", command, port=port, folder=folder))
    control.wait_until_ready(port)
    return peer


def redis(appendfsync: str) -> Start:
    def start(folder: Path, _tools: Tools, stack: ExitStack) -> Peer:
        port = free_port()
        settings = {
            "port": str(port),
            "bind": "127.0.0.1",
            "dir": str(folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": appendfsync,
            "auto-aof-rewrite-percentage": "0",  # no rewrite in the middle of a measurement
        }
        pairs = [word for key, value in settings.items() for word in (f"--{key}", value)]
        command = [program("redis-server"), *pairs]
        name = f"Redis {appendfsync}"
        return stack.enter_context(running(name, command, port=port, folder=folder))

    return start


def nats(name: str, find: Callable[[], str], *, sync: str = "") -> Start:
    def start(folder: Path, _tools: Tools, stack: ExitStack) -> Peer:
        port, config = free_port(), folder / "nats.conf"
        config.write_text(
            f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder}"\n {sync} }}\n'
        )
        command = [find(), "-c", str(config)]
        return stack.enter_context(running(name, command, port=port, folder=folder))

    return start


def debian_nats() -> str:
    return program("nats-server")


def new_nats() -> str:
    return go_program("nats-server", NATS_MODULE)


def start_nginx(folder: Path, _tools: Tools, stack: ExitStack) -> Peer:
    port, config = free_port(), folder / "nginx.conf"
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config.write_text(
        f"daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/errors;\n"
        "events { worker_connections 2048; }\n"
        f"http {{ access_log off; keepalive_requests 1000000000; default_type application/json;\n"
        f"{temporary} server {{ listen 127.0.0.1:{port};\n"
        f"location / {{ return 200 '{fixed_reply().decode()}'; }} }} }}\n"
    )
    command = [program("nginx"), "-c", str(config), "-e", str(folder / "errors")]
    return stack.enter_context(running("nginx `return 200`", command, port=port, folder=folder))


def start_epoll(folder: Path, tools: Tools, stack: ExitStack) -> Peer:
    port, body = free_port(), fixed_reply()
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
    reply = tools.write("reply", f"{head}{len(body)}\r\n\r\n".encode() + body)
    command = [tools.path("epoll"), str(port), reply]
    return stack.enter_context(running("C epoll", command, port=port, folder=folder))


def asgi(name: str) -> Start:
    def start(folder: Path, _tools: Tools, stack: ExitStack) -> Peer:
        if importlib.util.find_spec(name) is None:
            raise CannotMeasure(f"{name} is not installed; `make bench` does it")
        port, app = free_port(), "benchmarks.server.asgi_app:app"
        command = [sys.executable, "-m", name, app, "--host", "127.0.0.1", "--port", str(port)]
        if name == "uvicorn":
            command += ["--loop", "uvloop", "--http", "httptools", "--no-access-log"]
            command += ["--log-level", "warning"]
        else:
            command += ["--interface", "asgi", "--workers", "1", "--loop", "uvloop", "--no-ws"]
        env = {DATA_DIR: str(folder / "data")}
        return stack.enter_context(running(name, command, port=port, folder=folder, env=env))

    return start


STARTS: dict[str, Start] = {
    "topics": start_topics,
    "Redis everysec": redis("everysec"),
    "Redis always": redis("always"),
    "JetStream": nats("JetStream", debian_nats),
    "JetStream 2.15": nats("JetStream 2.15", new_nats),
    "JetStream always": nats("JetStream always", new_nats, sync="sync_interval: always"),
    "nginx `return 200`": start_nginx,
    "C epoll": start_epoll,
    "uvicorn": asgi("uvicorn"),
    "granian": asgi("granian"),
}


class Peers:
    """All servers that could be started, and why the others could not."""

    def __init__(self, folder: Path, tools: Tools, stack: ExitStack) -> None:
        self.running: dict[str, Peer] = {}
        self.missing: dict[str, str] = {}
        for number, (name, start) in enumerate(STARTS.items()):
            place = folder / str(number)
            place.mkdir()
            try:
                self.running[name] = start(place, tools, stack)
            except CannotMeasure as reason:
                self.missing[name] = str(reason)
