"""Cut the power, or kill the process, at every disk call while streams are read; then come back.

Promise under test: oracle 11. Whoever comes back with the id of the last frame gets the exact
suffix: nothing twice, nothing in another order, and no loss that is not announced, except for what
was deleted.
"""

from collections import Counter
from collections.abc import Callable

import pytest
from tests.crash.scenarios import tiny
from tests.crash.watch_run import WatchRun, check_cut

from topics.testing.crash_sweep import KILL, told

SEEDS = [0, 17, KILL]
Script = Callable[[WatchRun], None]


def start(run: WatchRun, *, cap_records: int = 0) -> None:
    """Have two topics and both readers; from here on every call is a cut point."""
    run.create("sure", "fsync", cap_records=cap_records)
    run.create("fast", "disk", cap_records=cap_records)
    run.watch("prompt", "sure", "fast")
    run.watch("late", "*", is_late=True, limit=2)
    run.save_watches()
    run.records = True


def deletes(run: WatchRun) -> None:
    """Delete what some have read and others have not, before and behind checkpoints."""
    start(run)
    run.append("sure", 3, tag="a")
    run.append("fast", 3, tag="a")
    run.append("sure", 2, tag="b")
    run.take("late", 1)
    run.delete("sure", "a", before_seq=3)
    run.append("fast", 4, tag="b", pad=300)
    run.work("checkpoint")
    run.delete("fast", "a")
    run.take("late", 2)
    run.append("sure", 4, tag="a", pad=100)
    run.append("fast", 2, tag="a")
    run.work("sync")
    run.append("fast", 2, tag="c")
    run.work("snapshot", "maintain")
    run.take("late", 1)
    run.delete("sure", "b")
    run.append("fast", 3, tag="a")
    run.reconnect("late")
    run.delete("fast", "c")
    run.append("sure", 1, tag="c")
    run.take("late", 3)


def caps(run: WatchRun) -> None:
    """Evict what readers have not seen, and move some of the rest to the cold tier."""
    start(run, cap_records=5)
    run.create("some", "disk", cap_records=12)
    run.append("sure", 6)
    run.append("some", 3, pad=200)
    run.append("fast", 4, pad=100)
    run.take("late", 2)
    run.append("some", 9, pad=100)
    run.append("fast", 3)
    run.work("checkpoint", "relocate")
    run.append("sure", 5, tag="a")
    run.take("late", 3)
    run.save_watches()
    run.append("fast", 4, tag="a")
    run.append("some", 4)
    run.work("snapshot", "relocate", "maintain")
    run.delete("sure", "a", before_seq=10)
    run.append("fast", 1)
    run.reconnect("late")
    run.append("sure", 3)
    run.take("late", 4)
    run.clock.advance_ms(2_000)
    run.work("sweep")
    run.append("fast", 2)
    run.work("sync")
    run.append("fast", 7)


def lives(run: WatchRun) -> None:
    """Drop topics under their readers, and make them anew."""
    start(run)
    run.append("sure", 4)
    run.append("fast", 5)
    run.take("late", 1)
    run.work("checkpoint")
    run.drop("sure")
    run.create("sure", "disk")
    run.append("sure", 6)
    run.take("late", 2)
    run.drop("fast")
    run.append("sure", 1)
    run.work("snapshot")
    run.save_watches()
    run.create("fast", "fsync", cap_records=3)
    run.append("fast", 5)
    run.take("late", 1)
    run.create("new", "disk")
    run.append("new", 3)
    run.reconnect("late")
    run.append("fast", 2)
    run.drop("new")
    run.create("new", "fsync")
    run.take("late", 3)
    run.append("new", 2)
    run.drop("sure")
    run.work("snapshot")


def comings(run: WatchRun) -> None:
    """Make watches and end them, and write their log anew in between."""
    start(run)
    run.append("sure", 3)
    run.watch("second", "fast")
    run.keep("second")
    run.append("fast", 3)
    run.watch("third", "sure", "f*", limit=1)
    run.watch("fourth", "*", is_late=True)
    run.keep("third", "fourth")
    run.append("sure", 2)
    run.take("fourth", 2)  # from here on both have an id to come back with
    run.take("late", 1)
    run.end_watch("second")
    run.append("fast", 2)
    run.save_watches()
    run.watch("fifth", "s*")
    run.keep("fifth")
    run.end_watch("third")
    run.append("sure", 2)
    run.watch("second", "sure")
    run.keep("second")
    run.take("late", 2)
    run.save_watches()
    run.append("fast", 1)
    run.end_watch("fourth")


@pytest.mark.crash
@pytest.mark.parametrize("wal_shards", [1, 2])
@pytest.mark.parametrize(
    ("script", "cuts_min", "met_min"),
    [
        (deletes, 120, {"news": 500, "lost news": 40, "crash told": 400, "deleted unseen": 400}),
        (caps, 220, {"news": 1500, "eviction told": 1000, "lost news": 40, "cold read": 1000}),
        (lives, 120, {"news": 400, "lost news": 15, "crash told": 200, "another life": 100}),
        (comings, 40, {"news": 100, "watch on its way": 40}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_stream_that_comes_back_gets_the_exact_suffix(
    script: Script, cuts_min: int, met_min: dict[str, int], wal_shards: int
) -> None:
    config = tiny(wal_shards)
    run = WatchRun(config)
    script(run)
    run.note_cut()
    assert len(run.cuts) >= cuts_min, "the sweep has shrunk"
    met: Counter[str] = Counter()
    for number, cut in enumerate(run.cuts):
        for place, seed in enumerate(SEEDS):
            then = SEEDS[number // 3 % 3] if number % 3 == place else None
            with told(f"cut point {number} of {len(run.cuts)}, seed {seed}, then {then}"):
                met += check_cut(config, cut, seed, then=then)
    assert met >= Counter(met_min), "the sweep meets less than it did"
