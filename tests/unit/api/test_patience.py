"""Readers that are slow, and readers that stand still; deadlines with one timer."""

import asyncio

from topics.api.alarms import Alarms
from topics.api.patience import Patience
from topics.clock import SystemClock


def test_patience_ends_only_when_nothing_moves() -> None:
    patience = Patience(1000, now_s=0.0)
    assert not patience.is_over(sent_bytes=100, buffered_bytes=80, now_s=0.9)
    assert not patience.is_over(sent_bytes=100, buffered_bytes=79, now_s=1.8)
    assert not patience.is_over(sent_bytes=200, buffered_bytes=179, now_s=2.7)
    assert patience.is_over(sent_bytes=200, buffered_bytes=179, now_s=2.9)


def test_an_idle_reader_is_never_slow() -> None:
    patience = Patience(1000, now_s=0.0)
    assert not patience.is_over(sent_bytes=10, buffered_bytes=0, now_s=100.0)
    assert not patience.is_over(sent_bytes=20, buffered_bytes=10, now_s=100.5)


def test_alarms_ring_in_order_and_not_when_cancelled() -> None:
    async def scenario() -> list[str]:
        rung: list[str] = []
        done = asyncio.Event()
        alarms = Alarms(asyncio.get_running_loop(), SystemClock())
        alarms.set(0.03, done.set)
        alarms.set(0.01, lambda: rung.append("first"))
        alarms.set(0.02, lambda: rung.append("second"))
        alarms.set(0.015, lambda: rung.append("never")).cancel()
        async with asyncio.timeout(5):
            await done.wait()
        alarms.close()
        return rung

    assert asyncio.run(scenario()) == ["first", "second"]
