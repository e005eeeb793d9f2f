"""What a power cut of the hostile disk may do to names, over any history."""

from hypothesis import given
from hypothesis.strategies import SearchStrategy, integers, lists, sampled_from, tuples

from topics.errors import DiskFailed
from topics.testing.hostile_disk import HostileDisk
from topics.testing.hostile_power_cut import KEEP_EVERYTHING, KEEP_NOTHING

PATHS = ["a", "b", "d/a", "d/b", "e/a", "e/sub/a"]
DIRECTORIES = ["", "d", "e", "e/sub"]

Step = tuple[str, str, str]

steps: SearchStrategy[Step] = tuples(
    sampled_from(
        ["create", "create", "rename", "rename", "unlink", "sync_dir", "remove_dir", "make_dir"]
    ),
    sampled_from(PATHS),
    sampled_from(PATHS),
)
histories = lists(steps, max_size=15)
seeds = integers(0, 1 << 32)


def snapshot(disk: HostileDisk) -> dict[str, bytes]:
    """Return every file with its content, and every directory with b"/"."""
    found: dict[str, bytes] = {}
    waiting = [""]
    while waiting:
        directory = waiting.pop()
        for name in disk.list(directory):
            path = f"{directory}/{name}" if directory else name
            if path in DIRECTORIES:
                found[path] = b"/"
                waiting.append(path)
            else:
                found[path] = disk.read(path)
    return found


def run_step(disk: HostileDisk, step: Step, content: bytes) -> None:
    call, path, other = step
    directory = path.rpartition("/")[0]
    if call == "create":
        file = disk.create(path)
        file.write_at(0, [content])
        file.sync_data()
    elif call == "rename":
        disk.rename(path, other)
    elif call == "unlink":
        disk.unlink(path)
    elif call == "sync_dir":
        disk.sync_dir(directory)
    elif call == "make_dir":
        disk.make_dir(directory)
    elif directory:
        disk.remove_dir(directory)


def run(history: list[Step]) -> tuple[HostileDisk, list[dict[str, bytes]]]:
    """Return the disk and what it held after each step; each content is made only once."""
    disk = HostileDisk()
    for directory in DIRECTORIES:
        disk.make_dir(directory)
    held = [snapshot(disk)]
    for number, step in enumerate(history):
        try:
            run_step(disk, step, b"%d" % number)
        except DiskFailed:
            continue
        held.append(snapshot(disk))
    return disk, held


@given(history=histories, seed=seeds)
def test_each_name_found_is_what_it_was_at_some_time(history: list[Step], seed: int) -> None:
    disk, held = run(history)
    found = snapshot(disk.power_cut(seed))
    for path, content in found.items():
        assert content in [state.get(path) for state in held]


@given(history=histories, seed=seeds)
def test_no_file_is_found_under_two_names(history: list[Step], seed: int) -> None:
    disk, _ = run(history)
    files = [content for content in snapshot(disk.power_cut(seed)).values() if content != b"/"]
    assert len(files) == len(set(files))


@given(history=histories, seed=seeds)
def test_a_file_that_only_was_renamed_since_its_sync_has_a_name(
    history: list[Step], seed: int
) -> None:
    disk = HostileDisk()
    for directory in DIRECTORIES:
        disk.make_dir(directory)
    disk.create("a").write_at(0, [b"precious"])
    disk.open("a").sync_data()
    disk.sync_dir("")
    for number, step in enumerate(history):
        was_there = b"precious" in snapshot(disk).values()
        before = disk.copy()
        try:
            run_step(disk, step, b"%d" % number)
        except DiskFailed:
            continue
        if was_there and b"precious" not in snapshot(disk).values():
            disk = before  # this step gave it up: a history that keeps it goes on without
    assert b"precious" in snapshot(disk.power_cut(seed)).values()


@given(history=histories, seed=seeds)
def test_after_a_sync_of_every_directory_all_names_survive(history: list[Step], seed: int) -> None:
    disk, held = run(history)
    for directory in DIRECTORIES:
        if disk.exists(directory):
            disk.sync_dir(directory)
    assert snapshot(disk.power_cut(seed)) == held[-1]


@given(history=histories, seed=seeds)
def test_a_synced_directory_keeps_its_names(history: list[Step], seed: int) -> None:
    disk, held = run(history)
    disk.sync_dir("")
    found = snapshot(disk.power_cut(seed))
    for path in held[-1].keys() & {"a", "b"}:
        assert found.get(path) == held[-1][path]


@given(history=histories)
def test_the_two_fixed_seeds_keep_nothing_and_everything(history: list[Step]) -> None:
    disk = HostileDisk()
    for directory in DIRECTORIES:
        disk.make_dir(directory)
    empty = snapshot(disk)
    for number, step in enumerate(history):
        if step[0] in {"create", "rename", "unlink"}:
            try:
                run_step(disk, step, b"%d" % number)
            except DiskFailed:
                continue
    now = snapshot(disk)
    assert snapshot(disk.power_cut(KEEP_NOTHING)) == empty
    assert snapshot(disk.power_cut(KEEP_EVERYTHING)) == now


@given(history=histories, seed=seeds)
def test_a_copy_has_the_same_names_and_the_same_outcomes(history: list[Step], seed: int) -> None:
    disk, held = run(history)
    copied = disk.copy()
    assert snapshot(copied) == held[-1]
    assert snapshot(copied.power_cut(seed)) == snapshot(disk.power_cut(seed))
