"""The oracles: what a start found must fit what was promised.

The numbers are those of the fault notes: 1 acknowledged ⊆ readable ⊆ submitted, 2 seqs, 3 order, 4
every seq accounted for, 5 deleted never returns. Each comes out of one question: which version of
the topic is this? After a crash it must be one that was at least durable (power cut) or
acknowledged (kill), whole, and where acknowledged seqs of a `disk` topic are missing they must be
announced.
"""

from typing import Literal

from topics.embedded import Log
from topics.testing.crash_history import History, Track, Version
from topics.testing.crash_model import TopicModel
from topics.testing.crash_observe import Observed, Violation, observe

Crash = Literal["power", "kill", "untrusted kill", "none"]
"""An untrusted kill follows a failed write or sync: a start may announce a loss that was none."""


def resolve(log: Log, history: History, *, crash: Crash, now_ms: int) -> History:
    """Find the version of each topic that a start left, or raise Violation; return them."""
    found = History()
    present = set(log.topics())
    unknown = present - set(history.tracks)
    if unknown:
        raise Violation(f"topics that nobody created: {sorted(unknown)}")
    for name, track in history.tracks.items():
        observed = observe(log, name) if name in present else None
        found.adopt(name, _resolve_topic(name, track, observed, crash=crash, now_ms=now_ms))
    return found


def check_live(log: Log, history: History, *, now_ms: int) -> None:
    """Check that a running log shows exactly what it has acknowledged."""
    clear, unclear = History(), History()
    for name, track in history.tracks.items():
        (clear if track.acked == len(track.versions) - 1 else unclear).tracks[name] = track
    present = set(log.topics())
    for name, track in clear.tracks.items():
        observed = observe(log, name) if name in present else None
        _resolve_topic(name, track, observed, crash="none", now_ms=now_ms)
    for name, track in unclear.tracks.items():
        if name in present:
            _check_unclear(name, track, observe(log, name), now_ms=now_ms)


def _check_unclear(name: str, track: Track, observed: Observed, *, now_ms: int) -> None:
    """After a failed operation: nothing of an append shows, of a delete any part."""
    if track.acked_version is None:
        raise Violation(f"{name}: a topic is there that was not acknowledged")
    before = track.acked_version.expired(now_ms).live
    sure = before.keys() & track.newest.live if track.newest else before.keys()
    if not observed.records.items() <= before.items() or not sure <= observed.records.keys():
        raise Violation(f"{name}: {sorted(observed.records)} between {sorted(before)} and {sure}")


def _resolve_topic(
    name: str, track: Track, observed: Observed | None, *, crash: Crash, now_ms: int
) -> Version:
    first = track.durable if crash == "power" else track.acked
    last = track.acked if crash == "none" else len(track.versions) - 1
    matches: list[TopicModel] = []
    mismatches = []
    # Newest first: the strongest reading of what was found.
    for at in range(last, first - 1, -1):
        version = track.versions[at]
        lost = _lost_life(track, at)
        if version is None or observed is None:
            if version is None and observed is None:
                return None
            mismatches.append(f"version {at}: the topic {'is' if observed else 'is not'} there")
            continue
        expected = version.expired(now_ms)
        told_head = 0 if lost else track.head_seq
        problem = mismatch(expected, observed, crash=crash, told_head=told_head)
        if problem is None:
            matches.append(expected)
        mismatches.append(f"version {at}: {problem}")
    if matches:
        assert observed is not None
        return _adopted(matches[0].agreed(matches), observed, crash=crash)
    raise Violation(
        f"{name}: {crash}: not any of versions {first}..{last} (acked {track.acked}):\n  "
        + "\n  ".join(mismatches)
        + f"\n  found: {observed}"
    )


def _lost_life(track: Track, at: int) -> bool:
    """Tell whether version `at` belongs to another life of the topic than the acknowledged one."""
    low, high = sorted((at, track.acked))
    return any(version is None for version in track.versions[low : high + 1])


def _adopted(expected: TopicModel, observed: Observed, *, crash: Crash) -> TopicModel:
    if crash != "none" and expected.forgets:
        floors = observed.earliest_seq, observed.evict_floor
        return expected.forgotten(observed.head_seq, floors, _lost(observed))
    return expected.crashed(observed.head_seq)


def mismatch(
    expected: TopicModel, observed: Observed, *, crash: Crash, told_head: int
) -> str | None:
    """Say in what the topic differs from a version, None where in nothing that matters."""
    if observed.head_seq < told_head:
        return f"head {observed.head_seq} is behind {told_head}, which was acknowledged"
    if crash != "none" and expected.forgets:
        return _config_mismatch(expected, observed) or _leftover(expected, observed)
    if _may_lose_tail(expected, crash) and observed.head_seq > expected.head_seq:
        expected = expected.crashed(observed.head_seq)
    return (
        _config_mismatch(expected, observed)
        or _record_mismatch(expected, observed)
        or _floor_mismatch(expected, observed)
        or _gap_mismatch(expected, observed)
    )


def _leftover(expected: TopicModel, observed: Observed) -> str | None:
    """Nothing volatile is left after a restart, and what was live of it is announced."""
    kept = {seq: entry for seq, entry in expected.live.items() if seq not in expected.volatile}
    if observed.records != kept:
        return f"seqs {sorted(observed.records)} are there, not {sorted(kept)}"
    silent = [s for s in expected.live.keys() & expected.volatile if not observed.announces(s)]
    return f"seqs {sorted(silent)} were lost in silence" if silent else None


def _lost(observed: Observed) -> tuple[tuple[int, int], ...]:
    return tuple((first, last) for first, last, reason in observed.gaps if reason == "crash")


def _may_lose_tail(expected: TopicModel, crash: Crash) -> bool:
    return expected.durability != "fsync" and crash in ("power", "untrusted kill")


def _config_mismatch(expected: TopicModel, observed: Observed) -> str | None:
    for name, value in expected.config.items():
        if observed.config[name] != value:
            return f"config {name} is {observed.config[name]!r}, not {value!r}"
    return None


def _record_mismatch(expected: TopicModel, observed: Observed) -> str | None:
    if observed.records == expected.live:
        return None
    missing = sorted(expected.live.keys() - observed.records.keys())
    if missing:
        return f"seqs {missing} are missing"
    extra = sorted(observed.records.keys() - expected.live.keys())
    if extra:
        deleted = [seq for seq in extra if seq in expected.removed]
        return f"seqs {extra} are there, of them {deleted} were deleted"
    for seq, entry in expected.live.items():
        if observed.records[seq] != entry:
            return f"seq {seq} is {observed.records[seq]}, not {entry}"
    raise AssertionError("two unequal dicts differ somewhere")


def _floor_mismatch(expected: TopicModel, observed: Observed) -> str | None:
    for name, wanted in (
        ("head_seq", expected.head_seq),
        ("live_records", len(expected.live)),
        ("live_bytes", expected.live_bytes),
        ("earliest_seq", expected.earliest_seq),
        ("evict_floor", expected.evict_floor),
    ):
        if getattr(observed, name) != wanted:
            return f"{name} is {getattr(observed, name)}, not {wanted}"
    return None


def _gap_mismatch(expected: TopicModel, observed: Observed) -> str | None:
    """Every loss is announced, no delete is, and nothing is announced that can be read."""
    evicted_below = expected.earliest_seq if expected.evict_floor > 1 else 1
    wanted = [(1, evicted_below - 1)] if evicted_below > 1 else []
    wanted += [
        (max(first, evicted_below), last) for first, last in expected.holes if last >= evicted_below
    ]
    if _joined(wanted) != _joined([(first, last) for first, last, _ in observed.gaps]):
        return f"gaps are {observed.gaps}, not {wanted}"
    crash_reasons = {reason for first, _, reason in observed.gaps if first >= evicted_below}
    if crash_reasons - {"crash"}:
        return f"a crash is announced as {crash_reasons}"
    return None


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined
