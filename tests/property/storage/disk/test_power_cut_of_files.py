"""What a power cut of the hostile disk may do to the bytes of a file, over any history."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis.strategies import (
    SearchStrategy,
    binary,
    booleans,
    builds,
    integers,
    just,
    lists,
    one_of,
    sampled_from,
    tuples,
)

from topics.errors import DiskFailed
from topics.testing.hostile_disk import HostileDisk
from topics.testing.hostile_faults import FaultPlan
from topics.testing.hostile_power_cut import KEEP_EVERYTHING, KEEP_NOTHING, SECTOR_BYTES, Damage

SIZE_MAX = 3000
NO_NOISE = Damage(garbled_write_odds=0.0)

Step = tuple[str, int, bytes]

# Long writes of one byte value find torn sectors, short ones find overlaps.
contents: SearchStrategy[bytes] = one_of(
    binary(min_size=1, max_size=20),
    builds(lambda byte, size: bytes([byte]) * size, integers(1, 255), integers(1, 1500)),
)
steps: SearchStrategy[Step] = one_of(
    tuples(just("write_at"), integers(0, SIZE_MAX), contents),
    tuples(sampled_from(["allocate", "truncate"]), integers(0, SIZE_MAX), just(b"")),
    tuples(sampled_from(["sync_data", "fail_sync"]), just(0), just(b"")),
)
histories = lists(steps, max_size=12)


@dataclass
class FileOracle:
    """Every value that each byte may have after a cut, kept without any idea of sectors."""

    now: bytearray = field(default_factory=bytearray)
    may_be: list[set[int]] = field(default_factory=list)
    sizes: set[int] = field(default_factory=lambda: {0})
    doubtful: bool = False

    def write(self, offset: int, content: bytes) -> None:
        end = offset + len(content)
        if end > len(self.now):
            self.resize(end)
        self.now[offset:end] = content
        for i, byte in enumerate(content, start=offset):
            self.may_be[i].add(byte)

    def resize(self, size: int) -> None:
        self.now = self.now[:size] + bytes(max(0, size - len(self.now)))
        self.may_be += [{0} for _ in range(size - len(self.may_be))]
        for values in self.may_be[size:]:
            values.add(0)
        self.sizes.add(size)

    def sync(self) -> None:
        """Forget what may not be any more; after a failed sync nothing is sure but what follows."""
        if not self.doubtful:
            self.may_be = [{byte} for byte in self.now]
            self.sizes = {len(self.now)}


def run(disk: HostileDisk, history: list[Step]) -> FileOracle:
    oracle = FileOracle()
    file = disk.create("a")
    disk.sync_dir("")
    for call, number, content in history:
        if call == "write_at":
            file.write_at(number, [content])
            oracle.write(number, content)
        elif call == "allocate":
            file.allocate(number)
            oracle.resize(max(number, len(oracle.now)))
        elif call == "truncate":
            file.truncate(number)
            oracle.resize(number)
        elif call == "sync_data":
            file.sync_data()
            oracle.sync()
        else:
            disk.arm(FaultPlan().fail(operation="sync_data"))
            try:
                file.sync_data()
            except DiskFailed:
                oracle.doubtful = True
    return oracle


@given(history=histories, seed=integers(0, 1 << 32))
def test_each_byte_found_was_there_at_some_time_since_its_sync(
    history: list[Step], seed: int
) -> None:
    disk = HostileDisk(damage=NO_NOISE)
    oracle = run(disk, history)
    found = disk.power_cut(seed).read("a")
    assert all(byte in values for byte, values in zip(found, oracle.may_be, strict=False))
    assert min(oracle.sizes) <= len(found) <= max(oracle.sizes)


@given(history=histories, seed=integers(0, 1 << 32))
def test_what_was_synced_last_of_all_is_found_whole(history: list[Step], seed: int) -> None:
    disk = HostileDisk(damage=Damage(garbled_write_odds=1.0, mixed_sector_odds=1.0))
    oracle = run(disk, [step for step in history if step[0] != "fail_sync"])
    disk.open("a").sync_data()
    assert disk.power_cut(seed).read("a") == oracle.now


@given(history=histories, content=contents, seed=integers(0, 1 << 32), noise=booleans())
def test_bytes_that_nobody_touched_since_their_sync_never_change(
    history: list[Step], content: bytes, seed: int, *, noise: bool
) -> None:
    disk = HostileDisk(damage=Damage(garbled_write_odds=float(noise), mixed_sector_odds=0.5))
    file = disk.create("a")
    disk.sync_dir("")
    file.write_at(0, [b"S" * 700, content])
    file.sync_data()
    touched = bytearray(700 + len(content))
    for call, offset, unsynced in history:
        if call == "write_at":
            file.write_at(offset, [unsynced])
            touched[offset : offset + len(unsynced)] = b"\1" * len(unsynced)
    found = disk.power_cut(seed).read("a")
    synced = b"S" * 700 + content
    assert len(found) >= len(synced)
    assert all(
        found[i] == synced[i] for i in range(len(synced)) if i >= len(touched) or not touched[i]
    )


@given(history=histories, seed=integers(0, 1 << 32))
def test_bytes_synced_after_a_failed_sync_survive(history: list[Step], seed: int) -> None:
    disk = HostileDisk()
    run(disk, [*history, ("write_at", 0, b"doubtful"), ("fail_sync", 0, b"")])
    file = disk.open("a")
    file.write_at(100, [b"sure"])
    file.sync_data()
    file.write_at(3000, [b"unsynced"])
    assert disk.power_cut(seed).read("a")[100:104] == b"sure"


@given(history=histories)
def test_the_two_fixed_seeds_keep_nothing_and_everything(history: list[Step]) -> None:
    disk = HostileDisk()
    synced = b""
    oracle = FileOracle()
    file = disk.create("a")
    disk.sync_dir("")
    for call, number, content in history:
        if call == "write_at":
            file.write_at(number, [content])
            oracle.write(number, content)
        elif call == "truncate":
            file.truncate(number)
            oracle.resize(number)
        elif call == "sync_data":
            file.sync_data()
            synced = bytes(oracle.now)
    assert disk.power_cut(KEEP_NOTHING).read("a") == synced
    assert disk.power_cut(KEEP_EVERYTHING).read("a") == oracle.now


@given(history=histories, seed=integers(0, 1 << 32))
def test_a_seed_is_one_outcome(history: list[Step], seed: int) -> None:
    disk = HostileDisk()
    run(disk, history)
    assert disk.power_cut(seed).read("a") == disk.power_cut(seed).read("a")
    assert disk.copy().power_cut(seed).read("a") == disk.power_cut(seed).read("a")


@given(history=histories, seed=integers(0, 1 << 32))
def test_a_second_cut_takes_nothing_more(history: list[Step], seed: int) -> None:
    disk = HostileDisk()
    run(disk, history)
    found = disk.power_cut(seed)
    content = found.read("a")
    assert found.power_cut(seed + 1).read("a") == content


@given(history=histories, seed=integers(0, 1 << 32))
def test_a_kill_keeps_everything_and_a_later_cut_takes_it_all_the_same(
    history: list[Step], seed: int
) -> None:
    disk = HostileDisk()
    oracle = run(disk, history)
    survivor = disk.kill()
    assert survivor.read("a") == oracle.now
    assert survivor.power_cut(seed).read("a") == disk.power_cut(seed).read("a")


@given(offset=integers(0, 2000), size=integers(1, 3000), seed=integers(2, 1 << 32))
def test_a_write_tears_only_between_sectors(offset: int, size: int, seed: int) -> None:
    content = b"x" * size
    disk = HostileDisk(damage=NO_NOISE)
    file = disk.create("a")
    disk.sync_dir("")
    file.allocate(6000)
    file.sync_data()
    file.write_at(offset, [content])
    found = disk.power_cut(seed).read("a")
    whole = bytes(offset) + content + bytes(6000 - offset - len(content))
    for start in range(0, 6000, SECTOR_BYTES):
        sector = slice(start, start + SECTOR_BYTES)
        assert found[sector] in {whole[sector], bytes(len(whole[sector]))}
