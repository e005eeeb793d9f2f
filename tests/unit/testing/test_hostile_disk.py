"""HostileDisk: faults at the chosen call, processes that are gone, copies."""

import threading

import pytest

from topics.errors import DirectoryLocked, DiskFailed, DiskFull
from topics.testing.hostile_disk import HostileDisk
from topics.testing.hostile_faults import MUTATIONS, FaultPlan, Operation, PowerCut


def write_twice(disk: HostileDisk) -> None:
    """Make seven calls that change the disk."""
    disk.make_dir("d")
    file = disk.create("d/a")
    disk.sync_dir("d")
    for content in (b"one", b"two"):
        file.write_at(file.size(), [content])
        file.sync_data()


def test_only_calls_that_change_the_disk_are_counted_and_traced() -> None:
    disk = HostileDisk()
    write_twice(disk)
    disk.read("d/a")
    disk.map("d/a")
    disk.list("d")
    disk.exists("d/a")
    disk.lock("LOCK")
    assert disk.calls_made == 7
    assert disk.calls == [
        ("make_dir", "d"),
        ("create", "d/a"),
        ("sync_dir", "d"),
        ("write_at", "d/a"),
        ("sync_data", "d/a"),
        ("write_at", "d/a"),
        ("sync_data", "d/a"),
    ]


def test_every_mutation_is_a_cut_point() -> None:
    disk = HostileDisk()
    disk.make_dir("d")
    file = disk.create("d/a")
    file.allocate(10)
    file.write_at(0, [b"x"])
    file.truncate(3)
    file.sync_data()
    disk.rename("d/a", "d/b")
    disk.unlink("d/b")
    disk.sync_dir("d")
    disk.remove_dir("d")
    assert {operation for operation, _ in disk.calls} == MUTATIONS
    assert disk.calls_made == len(MUTATIONS)


@pytest.mark.parametrize("call", range(7))
def test_a_cut_stops_the_run_before_its_call(call: int) -> None:
    disk = HostileDisk(FaultPlan().cut_power(at_call=call))
    with pytest.raises(PowerCut):
        write_twice(disk)
    assert disk.calls_made == call
    assert disk.is_gone
    written = [b"", b"", b"", b"", b"one", b"one", b"onetwo"][call]
    survivor = disk.kill()
    assert (survivor.read("d/a") if survivor.exists("d/a") else b"") == written


def test_after_a_cut_no_call_passes_any_more() -> None:
    disk = HostileDisk()
    disk.make_dir("d")
    file = disk.create("a")
    disk.power_cut(0)
    calls = [
        lambda: file.write_at(0, [b"x"]),
        lambda: file.read_at(0, 1),
        file.size,
        file.sync_data,
        lambda: file.allocate(1),
        lambda: file.truncate(1),
        lambda: disk.create("b"),
        lambda: disk.open("a"),
        lambda: disk.read("a"),
        lambda: disk.map("a"),
        lambda: disk.exists("a"),
        lambda: disk.size("a"),
        lambda: disk.list(""),
        lambda: disk.make_dir("e"),
        lambda: disk.remove_dir("d"),
        lambda: disk.rename("a", "b"),
        lambda: disk.unlink("a"),
        lambda: disk.sync_dir(""),
        lambda: disk.lock("LOCK"),
        disk.page_cache_id,
    ]
    for call in calls:
        with pytest.raises(PowerCut):
            call()
    file.close()


def test_a_plan_without_a_call_to_strike_changes_nothing() -> None:
    disk = HostileDisk(FaultPlan().cut_power(at_call=7))
    write_twice(disk)
    assert disk.read("d/a") == b"onetwo"


def test_a_call_fails_once_and_has_no_effect() -> None:
    disk = HostileDisk(FaultPlan().fail(at_call=1, operation="write_at", error=DiskFull))
    file = disk.create("a")
    file.write_at(0, [b"one"])
    with pytest.raises(DiskFull, match="a: No space left on device"):
        file.write_at(3, [b"two"])
    file.write_at(3, [b"six"])
    assert disk.read("a") == b"onesix"


def test_a_call_fails_for_ever() -> None:
    disk = HostileDisk(FaultPlan().fail(at_call=1, operation="create", forever=True))
    disk.create("a")
    for path in ("b", "c"):
        with pytest.raises(DiskFailed, match="Input/output error"):
            disk.create(path)
    assert disk.list("") == ["a"]


@pytest.mark.parametrize(
    "operation",
    ["allocate", "create", "make_dir", "remove_dir", "rename", "sync_data", "sync_dir", "truncate",
     "unlink", "write_at", "exists", "list", "lock", "map", "open", "page_cache_id", "read",
     "read_at", "size"],
)  # fmt: skip
def test_every_operation_can_be_made_to_fail(operation: Operation) -> None:
    disk = HostileDisk()
    disk.make_dir("d")
    file = disk.create("a")
    arguments: dict[str, tuple[object, ...]] = {
        "allocate": (10,),
        "truncate": (10,),
        "read_at": (0, 1),
        "write_at": (0, [b"x"]),
        "sync_data": (),
        "page_cache_id": (),
        "rename": ("a", "b"),
        "make_dir": ("e",),
        "remove_dir": ("d",),
    }
    target = file if hasattr(file, operation) and operation != "size" else disk
    before = disk.copy().list(""), disk.copy().read("a")
    disk.arm(FaultPlan().fail(operation=operation))
    with pytest.raises(DiskFailed, match="injected"):
        getattr(target, operation)(*arguments.get(operation, ("a",)))
    assert (disk.copy().list(""), disk.copy().read("a")) == before


def test_a_fault_may_be_for_some_files_only() -> None:
    disk = HostileDisk(FaultPlan().fail(operation="sync_data", path="wal/*", forever=True))
    disk.make_dir("wal")
    disk.create("a").sync_data()
    with pytest.raises(DiskFailed):
        disk.create("wal/1.log").sync_data()


def test_a_short_write_leaves_a_prefix() -> None:
    disk = HostileDisk(FaultPlan().write_short(at_call=1, written_bytes=4))
    file = disk.create("a")
    file.write_at(0, [b"whole "])
    with pytest.raises(DiskFull):
        file.write_at(6, [b"hal", b"ved"])
    assert disk.read("a") == b"whole halv"


def test_a_short_write_planned_for_another_call_lets_it_pass() -> None:
    disk = HostileDisk(FaultPlan().write_short(at_call=1, written_bytes=1, operation=None))
    file = disk.create("a")
    file.sync_data()
    file.write_at(0, [b"whole"])
    assert disk.read("a") == b"whole"


def test_several_faults_are_counted_apart() -> None:
    plan = FaultPlan().fail(at_call=0, operation="sync_data").cut_power(at_call=4)
    disk = HostileDisk(plan)
    file = disk.create("a")
    with pytest.raises(DiskFailed):
        file.sync_data()
    file.sync_data()
    file.write_at(0, [b"x"])
    with pytest.raises(PowerCut):
        file.write_at(1, [b"y"])


def test_armed_later_a_plan_counts_from_there() -> None:
    disk = HostileDisk()
    write_twice(disk)
    disk.arm(FaultPlan().cut_power(at_call=1))
    disk.create("b")
    with pytest.raises(PowerCut):
        disk.create("c")
    assert disk.calls_made == 8


def test_the_next_process_can_be_given_its_own_plan() -> None:
    disk = HostileDisk()
    write_twice(disk)
    plan = FaultPlan().cut_power(at_call=0)
    for after in (disk.copy(plan=plan), disk.power_cut(3, plan=plan), disk.kill(plan=plan)):
        assert after.calls_made == 0
        with pytest.raises(PowerCut):
            after.create("b")


def test_the_page_cache_survives_a_kill_and_not_a_cut() -> None:
    disk = HostileDisk()
    first = disk.page_cache_id()
    killed = disk.kill()
    assert killed.page_cache_id() == first
    cut = killed.power_cut(5)
    assert cut.page_cache_id() != first
    assert cut.power_cut(5).page_cache_id() not in {first, None}
    assert HostileDisk(knows_page_cache=False).page_cache_id() is None


def test_a_lock_is_free_for_the_next_process() -> None:
    disk = HostileDisk()
    disk.lock("LOCK")
    with pytest.raises(DirectoryLocked):
        disk.lock("LOCK")
    disk.kill().lock("LOCK")


def test_a_lock_closed_twice_does_not_free_the_lock_of_another() -> None:
    disk = HostileDisk()
    first = disk.lock("LOCK")
    first.close()
    disk.lock("LOCK")
    first.close()
    with pytest.raises(DirectoryLocked):
        disk.lock("LOCK")


def test_a_copy_and_its_original_go_their_own_ways() -> None:
    disk = HostileDisk()
    write_twice(disk)
    file = disk.open("d/a")
    copied = disk.copy()
    file.write_at(0, [b"ONE"])
    copied.open("d/a").write_at(3, [b"TWO"])
    copied.create("d/b")
    assert disk.read("d/a") == b"ONEtwo"
    assert copied.read("d/a") == b"oneTWO"
    assert disk.list("d") == ["a"]
    assert not disk.is_gone


def test_a_flipped_bit_is_read_mapped_and_found_after_a_cut() -> None:
    disk = HostileDisk()
    write_twice(disk)
    disk.sync_dir("")
    view = disk.map("d/a")
    disk.flip_bit("d/a", 8 * 2 + 1)
    assert bytes(view) == disk.read("d/a") == b"on" + bytes([ord("e") ^ 2]) + b"two"
    assert disk.power_cut(0).read("d/a") == bytes(view)


def test_threads_of_a_process_that_is_cut_all_stop() -> None:
    disk = HostileDisk(FaultPlan().cut_power(at_call=1000))
    stopped: list[int] = []

    def write(number: int) -> None:
        try:
            file = disk.create(str(number))
            for i in range(10_000):
                file.write_at(i, [b"x"])
        except PowerCut:
            stopped.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert sorted(stopped) == [0, 1, 2, 3]
    assert disk.calls_made == 1000
    survivor = disk.kill()
    written_bytes = sum(survivor.size(name) for name in survivor.list(""))
    assert written_bytes + len(survivor.list("")) == 1000
