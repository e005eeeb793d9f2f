"""The faces of one log: embedded and over HTTP, both also awaited, with the same names."""

import asyncio
import functools
import inspect
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from topics.aio import AsyncLog
from topics.client import AsyncTopics

DEADLINE_S = 20.0
AnyLog = Any
"""One of the four faces: no base class of theirs, the names are what they share."""
AnyValue = Any
_numbers = itertools.count(1)


def fresh(word: str = "t") -> str:
    """Return a name that no other test of this server has used."""
    return f"{word}-{next(_numbers)}"


class Awaited:
    """An object of coroutines, called like one of functions: each runs to its end on one loop."""

    def __init__(self, runner: asyncio.Runner, inner: Any) -> None:  # noqa: ANN401 - any of them
        self._runner = runner
        self._inner = inner

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - stands for any attribute
        found = getattr(self._inner, name)
        return functools.partial(self._run, found) if callable(found) else found

    def _run(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        result = method(*args, **kwargs)
        if inspect.isawaitable(result):
            return self._runner.run(_within_deadline(result))
        if isinstance(result, AsyncIterator):
            return self._each(result)
        return Awaited(self._runner, result)  # a handle

    def _each(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        while True:
            try:
                yield self._runner.run(_within_deadline(anext(items)))
            except StopAsyncIteration:
                return


async def _within_deadline(work: Any) -> Any:  # noqa: ANN401 - any answer
    async with asyncio.timeout(DEADLINE_S):
        return await work


def open_awaited(runner: asyncio.Runner, url: str, **options: Any) -> Awaited:  # noqa: ANN401
    async def opened() -> AsyncTopics:
        return AsyncTopics(url, **options)

    return Awaited(runner, runner.run(opened()))


def open_inside(runner: asyncio.Runner, path: str) -> Awaited:
    return Awaited(runner, runner.run(AsyncLog.open(path)))
