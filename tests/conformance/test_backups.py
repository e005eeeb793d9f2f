"""`POST /v0/backups/:backup`: a server is copied while it works, and started from the copy."""

import threading
from pathlib import Path

import httpx
import pytest
from tests.conformance.api import Api, Reply, ok, open_client, refused

from topics.operate.verify import verify
from topics.storage.disk.local_disk import LocalDisk
from topics.testing.server_process import ServerProcess

KEYS = "boss,reader:read,part:rwda:orders."
LOAD = {"TOPICS_CHECKPOINT_MS": "100", "TOPICS_SNAPSHOT_MS": "1000"}


@pytest.fixture
def own(tmp_path: Path) -> ServerProcess:
    settings = {"TOPICS_BACKUP_DIR": str(tmp_path / "backups"), **LOAD}
    return ServerProcess(str(tmp_path / "data"), settings=settings, keys=KEYS)


def read_all(api: Api, topic: str) -> list[object]:
    found: list[object] = []
    page: Reply = {"next_from_seq": 0, "caught_up": False}
    while not page["caught_up"]:
        page = api.diff(topic, from_seq=page["next_from_seq"], limit=1000)
        found += [record["data"] for record in page["records"]]
    return found


def test_everything_acknowledged_before_a_backup_is_in_it(
    own: ServerProcess, tmp_path: Path
) -> None:
    acked = [0, 0]
    stopping = threading.Event()
    begun = threading.Barrier(3)

    def write(number: int) -> None:
        with open_client(own.url, key="boss") as client:
            api = Api(client)
            api.append(f"t{number}", 0)
            acked[number] = 1
            begun.wait(10)
            while not stopping.wait(0.001):
                first = acked[number]
                api.append(f"t{number}", *range(first, first + 10))
                acked[number] += 10

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    before: list[list[int]] = []
    with own:
        for thread in threads:
            thread.start()
        begun.wait(10)
        try:
            with open_client(own.url, key="boss") as client:
                for number in range(5):
                    before.append(list(acked))
                    client.timeout = httpx.Timeout(60.0)
                    made = ok(Api(client).post(f"backups/b{number}"), 201)
                    assert made["backup"] == f"b{number}"
                    assert made["topics"] == 2
        finally:
            stopping.set()
            for thread in threads:
                thread.join()
    for number, counts in enumerate(before):
        check_restored(tmp_path / "backups" / f"b{number}", counts)


def check_restored(place: Path, counts: list[int]) -> None:
    assert verify(LocalDisk(str(place))).healthy
    with ServerProcess(str(place)) as restored, open_client(restored.url) as client:
        for topic, count in enumerate(counts):
            found = read_all(Api(client), f"t{topic}")
            assert found == list(range(len(found)))
            assert len(found) >= count


def test_who_may_make_a_backup_and_where(own: ServerProcess, tmp_path: Path) -> None:
    with own:
        for key in ("reader", "part"):
            with open_client(own.url, key=key) as client:
                refused(Api(client).post("backups/b"), 403, "forbidden")
        with open_client(own.url, key="boss") as client:
            api = Api(client)
            ok(api.post("backups/b"), 201)
            refused(api.post("backups/b"), 409, "backup_exists")
            refused(api.post("backups/..%2Fb"), 400, "invalid_request")
            refused(api.post("backups/.hidden"), 400, "invalid_request")
    assert [path.name for path in (tmp_path / "backups").iterdir()] == ["b"]


def test_without_a_folder_there_are_no_backups(http1: Api) -> None:
    with open_client(str(http1.client.base_url), key="boss") as client:
        refused(Api(client).post("backups/b"), 404, "not_found")
