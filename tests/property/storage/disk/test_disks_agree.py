"""All disks answer alike, whatever is done to them."""

from collections.abc import Sequence
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis.strategies import (
    SearchStrategy,
    binary,
    integers,
    lists,
    one_of,
    sampled_from,
    tuples,
)

from topics.errors import DiskFailed
from topics.storage.disk.disk import Disk, DiskFile
from topics.storage.disk.local_disk import LocalDisk
from topics.storage.disk.ram_disk import RamDisk
from topics.testing.hostile_disk import HostileDisk

FILES = ["a", "b", "d/a", "d/b", "e/f/a"]
DIRECTORIES = ["d", "e", "e/f"]
PATHS = FILES + DIRECTORIES

Step = tuple[str, str, str, int, bytes]
Answer = object


def steps_of(calls: list[str], paths: list[str]) -> SearchStrategy[Step]:
    return tuples(
        sampled_from(calls),
        sampled_from(paths),
        sampled_from(PATHS),
        integers(0, 6000),
        binary(max_size=50),
    )


# The protocol renames and measures files only: what happens to directories is left open.
steps = one_of(
    steps_of(["create", "create", "rename", "size"], FILES),
    steps_of(["create", "exists", "list", "map", "open", "read", "sync_dir", "unlink"], PATHS),
    steps_of(["make_dir", "make_dir", "remove_dir"], DIRECTORIES),
    steps_of(["allocate", "read_at", "truncate", "write_at", "write_at"], FILES),
)


class Session:
    """One disk with the handles and maps that were opened on it."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.files: list[DiskFile] = []
        self.views: list[memoryview] = []

    def run(self, step: Step) -> Answer:
        try:
            return self._answer(step)
        except DiskFailed as error:
            return type(error)

    def _answer(self, step: Step) -> Answer:
        call, path, other, number, content = step
        if call in {"create", "open"}:
            self.files.append(getattr(self.disk, call)(path))
            return None
        if call == "map":
            self.views.append(self.disk.map(path))
            return None
        if call == "rename":
            return self.disk.rename(path, other)  # type: ignore[func-returns-value]  # an answer too
        if call in {"allocate", "truncate", "read_at", "write_at"}:
            return self._answer_of_file(call, number, content)
        answer: Answer = getattr(self.disk, call)(path)
        return answer

    def _answer_of_file(self, call: str, number: int, content: bytes) -> Answer:
        if not self.files:
            return None
        file = self.files[number % len(self.files)]
        if call == "write_at":
            return file.write_at(number, [content, b"."])  # type: ignore[func-returns-value]  # an answer too
        if call == "read_at":
            return file.read_at(number, 30)
        if call == "truncate" and any(len(view) for view in self.views):
            return None  # what a map shows behind the end of its file is left open
        answer: Answer = getattr(file, call)(number)
        return answer

    def looks(self) -> Sequence[bytes]:
        return [bytes(view) for view in self.views]


@given(history=lists(steps, max_size=30))
def test_the_disks_agree_on_every_answer(history: list[Step]) -> None:
    with TemporaryDirectory() as root:
        sessions = [Session(disk) for disk in (LocalDisk(root), RamDisk(), HostileDisk())]
        for step in history:
            local, ram, hostile = (session.run(step) for session in sessions)
            assert (step, local) == (step, ram) == (step, hostile)
        local_looks, ram_looks, hostile_looks = (session.looks() for session in sessions)
        assert local_looks == ram_looks == hostile_looks
