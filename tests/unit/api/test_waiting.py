"""Nobody is kept waiting by what is many, nor by who holds a lock for long."""

import asyncio
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.unit.api.test_server import Client, run
from tests.unit.api.wire import HOST, post

from topics.api.server import Server
from topics.engine.routers.table import Routers
from topics.engine.topics.registry import Registry

LISTS = (
    "/v0/topics",
    "/v0/topics?prefix=t1",
    "/v0/routers",
    "/v0/groups",
    "/v0/health",
    "/v0/ready",
)
LOOKS = ("/v0/metrics", "/console/data/overview", "/console/data/storage", "/console/data/queues")
ONE = b'{"records":[{"data":1}]}'


def get(path: str) -> bytes:
    return b"GET %b HTTP/1.1\r\n%b\r\n" % (path.encode(), HOST)


async def fill(client: Client, topics: int) -> None:
    for number in range(topics):
        await client.ask(post(f"/v0/topics/t{number}", ONE))


def refuse(*_: object) -> object:
    raise AssertionError("it looks at all there are")


@pytest.mark.parametrize("path", LISTS)
def test_a_list_looks_at_no_more_than_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    async def scenario(server: Server) -> None:
        async with Client(server) as client:
            await fill(client, 3)
            with monkeypatch.context() as patched:
                patched.setattr(Registry, "all", refuse)
                patched.setattr(Routers, "all", refuse)
                assert (await client.ask(get(path))).status == 200

    run(tmp_path, scenario)


@pytest.mark.parametrize("path", LOOKS)
def test_who_looks_at_all_there_is_does_so_one_after_the_other_off_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    everything, each = Registry.all, Registry.each
    threads: list[str] = []

    def note_then_look(registry: Registry) -> object:
        threads.append(threading.current_thread().name)
        return everything(registry)

    def note_then_go_through(registry: Registry) -> object:
        threads.append(threading.current_thread().name)
        return each(registry)

    async def scenario(server: Server) -> None:
        monkeypatch.setattr(Registry, "all", note_then_look)
        monkeypatch.setattr(Registry, "each", note_then_go_through)
        async with Client(server) as client, Client(server) as other:
            answers = await asyncio.gather(client.ask(get(path)), other.ask(get(path)))
            assert [answer.status for answer in answers] == [200, 200]

    run(tmp_path, scenario)
    assert "topics-looks_0" in threads
    # Besides it the background, and whoever opens and closes the log.
    assert threading.main_thread().name not in threads


@pytest.mark.parametrize("lock", ["registry", "work", "cold", "routers"])
def test_who_holds_a_lock_for_long_holds_up_no_reader_and_no_writer(
    tmp_path: Path, lock: str
) -> None:
    async def scenario(server: Server) -> None:
        engine = server.app.engine
        locks: dict[str, AbstractContextManager[bool]] = {
            "registry": engine.registry.lock,
            "work": engine._work_lock,
            "cold": engine._cold_lock,
            "routers": engine._routers._lock,
        }
        async with Client(server) as client:
            await fill(client, 2)
            held, done = threading.Event(), threading.Event()

            def hold() -> None:
                with locks[lock]:
                    held.set()
                    done.wait()

            holder = threading.Thread(target=hold)
            holder.start()
            try:
                held.wait()
                for path in (*LISTS, *LOOKS, "/v0/topics/t1"):
                    assert (await client.ask(get(path))).status == 200
                assert (await client.ask(post("/v0/topics/t1", ONE))).status == 200
                assert (await client.ask(post("/v0/topics/t1/diff", b"{}"))).status == 200
                match = b'{"match":["tag","Glob","*"]}'
                assert (await client.ask(post("/v0/topics/t1/delete", match))).status == 200
            finally:
                done.set()
                holder.join()

    run(tmp_path, scenario)
