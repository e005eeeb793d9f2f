"""The faces have the same names and parameters, and the client leans on nothing it must not."""

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from topics.aio import AsyncLog
from topics.client import AsyncTopics, Topics
from topics.embedded import Log
from topics.handles import AsyncTopicHandle, TopicHandle

PROGRAM = """
import sys
import topics.client
from topics import AsyncTopics, Topics
bad = ("topics.engine", "topics.storage", "topics.kernel", "topics.api", "topics.embedded",
       "topics.aio", "uvloop", "httptools", "h2", "wsproto", "httpx", "typer", "pydantic")
print([name for name in bad if name in sys.modules])
"""
OF_A_DIRECTORY = {"sync", "checkpoint"}
"""What only somebody who has the directory open can do."""
OF_A_SERVER = {
    "health", "ready", "metrics", "ticket", "watch",
    "manifest", "renew_pin", "release_pin", "read_range",
    "begin_upload", "attach", "abandon_upload", "compact",
}  # fmt: skip
"""What there is only of a server, and bulk work for those who have not the directory.

A watch saves connections, of which a log in the same process has none: there each topic is read by
a `tail` of its own, or many together by a consumer."""
OTHER_ARGUMENTS = {"backup"}
"""Of a server it has a name in the folder that its operator chose, and may time out."""


def printed_by(program: str) -> str:
    source = str(Path(__file__).parents[2] / "src")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    return done.stdout


def public(kind: type) -> dict[str, Any]:
    return {
        name: value
        for name, value in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def parameters(function: Callable[..., object]) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(p.name, p.kind, p.default) for p in found]


@pytest.mark.parametrize(
    ("plain", "awaited"), [(Topics, AsyncTopics), (TopicHandle, AsyncTopicHandle)]
)
def test_both_clients_have_the_same_names(plain: type, awaited: type) -> None:
    assert public(plain).keys() == public(awaited).keys()
    for name, function in public(plain).items():
        assert parameters(function) == parameters(public(awaited)[name]), name


def test_the_embedded_log_and_the_client_have_the_same_names() -> None:
    assert public(Log).keys() - OF_A_DIRECTORY == public(Topics).keys() - OF_A_SERVER


@pytest.mark.parametrize("name", sorted(public(Log).keys() - OF_A_DIRECTORY - OTHER_ARGUMENTS))
def test_a_call_of_the_embedded_log_is_one_of_the_client(name: str) -> None:
    assert parameters(public(Log)[name]) == parameters(public(Topics)[name])


@pytest.mark.parametrize("name", sorted(public(Log).keys()))
def test_a_call_of_the_embedded_log_is_one_of_the_asyncio_log(name: str) -> None:
    assert parameters(public(Log)[name]) == parameters(public(AsyncLog)[name])


@pytest.mark.parametrize("name", sorted(public(Log).keys() - OF_A_DIRECTORY))
def test_what_one_awaited_face_awaits_the_other_does_too(name: str) -> None:
    log, client = public(AsyncLog)[name], public(AsyncTopics)[name]
    assert inspect.iscoroutinefunction(log) == inspect.iscoroutinefunction(client)


def test_a_client_imports_neither_engine_nor_server() -> None:
    assert printed_by(PROGRAM) == "[]\n"


def test_the_package_still_offers_what_it_promises() -> None:
    program = "import topics; print([n for n in topics.__all__ if not hasattr(topics, n)])"
    assert printed_by(program) == "[]\n"
