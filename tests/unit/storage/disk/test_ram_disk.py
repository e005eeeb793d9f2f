"""RamDisk: rooms that are outgrown, one writer with many readers."""

import threading

from topics.storage.disk.ram_disk import RamContent, RamDisk


def test_memory_has_no_page_cache_and_every_lock_is_free() -> None:
    disk = RamDisk()
    disk.lock("LOCK")
    disk.lock("LOCK")
    assert disk.page_cache_id() is None


def test_a_room_that_nobody_looks_at_is_given_up_when_outgrown() -> None:
    content = RamContent(b"seen")
    view = content.view()
    content.write(4, bytes(10_000))
    assert len(content._outgrown) == 1
    del view
    content.write(4, bytes(100_000))
    assert content._outgrown == []


def test_every_view_follows_however_often_the_file_was_outgrown() -> None:
    content = RamContent()
    views = []
    for size in (10, 5_000, 50_000, 500_000):
        content.resize(size)
        views.append(content.view())
    content.write(0, b"first")
    content.write(9, b"across the end of the first view")
    assert {bytes(view[:5]) for view in views} == {b"first"}
    assert [bytes(view[9:13]) for view in views] == [b"a", b"acro", b"acro", b"acro"]
    assert [len(view) for view in views] == [10, 5_000, 50_000, 500_000]


def test_readers_beside_a_writer_never_see_a_hole() -> None:
    file = RamDisk().create("a")
    rounds = 2_000
    torn: list[bytes] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            size = file.size()
            found = file.read_at(max(0, size - 10), 10)
            if found.strip(b"x"):
                torn.append(found)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for i in range(rounds):
        file.write_at(i * 10, [b"x" * 10])
    done.set()
    for reader in readers:
        reader.join(timeout=10)
    assert torn == []
    assert file.size() == rounds * 10
