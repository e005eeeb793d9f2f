"""When cycles are looked for: not in what stays, and seldom in all."""

import gc
from collections.abc import Iterator

import pytest

from topics.collector import (
    TOPICS_MIN,
    Collector,
    collect_later,
    collect_seldom,
    nothing_collected,
)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()


def test_no_pass_is_made_while_what_stays_is_made() -> None:
    passes: list[str] = []

    def note(phase: str, _: object) -> None:
        passes.append(phase)

    gc.callbacks.append(note)
    try:
        with nothing_collected():
            kept = [[n] for n in range(10_000)]
            assert passes == []
    finally:
        gc.callbacks.remove(note)
    assert gc.isenabled()
    assert len(kept) == 10_000


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with nothing_collected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_server_looks_at_what_was_there_at_its_start_no_more_and_at_the_rest_seldom() -> None:
    collect_later()
    assert not gc.isenabled()
    kept = [[n] for n in range(10_000)]
    collect_seldom()
    assert gc.isenabled()
    assert gc.get_freeze_count() > len(kept)
    assert not any(gc.get_objects(generation) for generation in (1, 2))
    full: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        full.extend([1] if phase == "start" and info["generation"] == 2 else [])

    gc.callbacks.append(note)
    try:
        more = [[n] for n in range(200_000)]
    finally:
        gc.callbacks.remove(note)
    assert (full, len(more)) == ([], 200_000)


def test_what_stays_is_left_alone_after_each_so_many_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frozen: list[int] = []
    collector = Collector()
    for topics in (0, TOPICS_MIN - 1, TOPICS_MIN, TOPICS_MIN + 1, 2 * TOPICS_MIN, 5 * TOPICS_MIN):
        with monkeypatch.context() as patched:
            patched.setattr("gc.freeze", lambda topics=topics: frozen.append(topics))
            collector.leave_alone(topics)
    assert frozen == [TOPICS_MIN, 2 * TOPICS_MIN, 5 * TOPICS_MIN]
