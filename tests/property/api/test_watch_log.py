"""The log of the watches: what is at its end may be torn, what was acknowledged is there."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from topics.api.saved_watches import SavedPlace, SavedWatch, SavedWatches
from topics.storage.disk import paths
from topics.testing.hostile_disk import HostileDisk

WIDS = st.sampled_from(["wid_a", "wid_b", "wid_c", "wid_d"])
PLACES = st.lists(
    st.builds(
        SavedPlace,
        name=st.sampled_from(["t", "u.0"]),
        life=st.integers(0, 2**40),
        first_life=st.integers(0, 9),
        seq=st.integers(0, 2**63),
        asked=st.booleans(),
        by_pattern=st.booleans(),
    ),
    max_size=3,
)
WATCHES = st.builds(
    SavedWatch,
    wid=WIDS,
    caller=st.sampled_from(["anonymous", "12345678"]),
    body=st.sampled_from(
        [msgspec.Raw(b'{"topics":{"t":{}}}'), msgspec.Raw(b'{"topics":{"*":{}}}')]
    ),
    places=PLACES,
)
ADDED = st.tuples(st.just("add"), st.lists(WATCHES, max_size=3, unique_by=lambda w: w.wid))
ENDED = st.tuples(st.just("end"), st.lists(WIDS, max_size=2, unique=True))
NOTHING: list[object] = []
ANEW = st.tuples(st.just("anew"), st.just(NOTHING))
STEPS = st.lists(st.one_of(ADDED, ENDED, ANEW), max_size=8)
State = dict[str, bytes]


def make_disk() -> HostileDisk:
    disk = HostileDisk()
    disk.make_dir(paths.META_DIR)
    return disk


def shown(watches: list[SavedWatch]) -> State:
    return {watch.wid: msgspec.json.encode(watch) for watch in watches}


def write(saved: SavedWatches, live: dict[str, SavedWatch], step: str, what: list) -> None:  # type: ignore[type-arg] # watches or their ids
    """Do one step, and to `live` what it means."""
    if step == "add":
        live.update({watch.wid: watch for watch in what})
        saved.append(what, [])
    elif step == "end":
        for wid in what:
            live.pop(wid, None)
        saved.append([], what)
    else:
        saved.begin()
        saved.add(live.values())
        saved.finish()


@given(STEPS, st.data())
def test_a_log_torn_anywhere_gives_what_was_acknowledged_before(
    steps: list[tuple[str, list[object]]], data: st.DataObject
) -> None:
    disk = make_disk()
    saved, live = SavedWatches(disk), dict[str, SavedWatch]()
    write(saved, live, "anew", [])
    states = [(disk.size(paths.WATCH_LOG), shown([*live.values()]))]
    for step, what in steps:
        write(saved, live, step, what)
        if step == "anew":
            states.clear()
        states.append((disk.size(paths.WATCH_LOG), shown([*live.values()])))
    whole = disk.read(paths.WATCH_LOG)
    cut = data.draw(st.integers(states[0][0], len(whole)), label="cut")
    junk = data.draw(st.binary(max_size=40), label="junk")
    torn = make_disk()
    file = torn.create(paths.WATCH_LOG)
    file.write_at(0, [whole[:cut], junk])
    again = SavedWatches(torn)
    found = shown(again.load())
    size, least = max((at, state) for at, state in states if at <= cut)
    if cut == size:
        assert found == least
    else:  # of what was being added the first may be whole
        following = next((state for at, state in states if at > cut), least)
        for wid in found.keys() | least.keys():
            assert found.get(wid) in (least.get(wid), following.get(wid))
    live = {watch.wid: watch for watch in SavedWatches(torn).load()}
    for step, what in steps:  # it goes on behind what was whole
        write(again, live, step, what)
        assert shown(SavedWatches(torn).load()) == shown([*live.values()])


def test_a_file_that_is_mostly_about_what_is_gone_is_due_to_be_written_anew() -> None:
    disk = make_disk()
    saved = SavedWatches(disk)
    saved.begin()
    saved.finish()
    body = msgspec.Raw(msgspec.json.encode({"topics": {"t" * 50_000: {}}}))
    watch = SavedWatch(wid="wid_a", caller="anonymous", body=body, places=[])
    written = 0
    while not saved.is_due:
        saved.append([watch], [])
        written += 1
    assert 20 <= written <= 23, "a megabyte of them"
    saved.begin()
    saved.add([watch])
    saved.finish()
    assert disk.size(paths.WATCH_LOG) < 60_000
    assert SavedWatches(disk).load() == [watch]


def test_what_was_torn_does_not_come_back_behind_what_is_added() -> None:
    disk = make_disk()
    saved = SavedWatches(disk)
    saved.begin()
    saved.finish()
    one, two = (
        SavedWatch(wid=wid, caller="anonymous", body=msgspec.Raw(b"{}"), places=[])
        for wid in ("wid_a", "wid_b")
    )
    start = disk.size(paths.WATCH_LOG)
    saved.append([one, two], [])
    disk.flip_bit(paths.WATCH_LOG, 8 * (start + 20))  # of the first: a power cut took it alone
    again = SavedWatches(disk)
    assert again.load() == []
    again.append([one], [])
    assert SavedWatches(disk).load() == [one]
