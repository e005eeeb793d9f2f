"""Files and frames over HTTP: manifest, pins, ranges, and whose they are."""

import mmap
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from tests.conformance.api import Api, Reply, fresh, ok, open_client, refused

from topics.kernel import index_segment
from topics.model.frames import MEDIA_TYPE, RangePage, decode_range
from topics.testing.server_process import ServerProcess

SETTINGS = {
    "TOPICS_SEGMENT_MAX_EVENTS": "4",
    "TOPICS_CHECKPOINT_MS": "20",
    "TOPICS_HOT_RETAIN_SEGMENTS": "2",
}
MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("server")
    settings = SETTINGS | {"TOPICS_COLD_DIR": str(directory / "cold")}
    with ServerProcess(str(directory / "data"), settings=settings) as process:
        yield process


def frames(api: Api, topic: str, **parameters: object) -> RangePage:
    response = api.get(f"topics/{topic}/range", **parameters)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == MEDIA_TYPE
    assert int(response.headers["content-length"]) == len(response.content)
    return decode_range(response.content)


def filled(api: Api, count: int, wanted: int) -> tuple[str, Reply]:
    """Append records and read until so many of them are in segments: each read may be early."""
    topic = fresh("seg")
    for i in range(count):
        api.append(topic, i)
    for _ in range(2000):
        manifest = ok(api.get(f"topics/{topic}/segments"))
        if sum(segment["records"] for segment in manifest["segments"]) >= wanted:
            return topic, manifest
    raise AssertionError(f"{topic} is not in segments")


def path_of(uri: str) -> Path:
    parts = urlsplit(uri)
    assert parts.scheme == "file"
    return Path(unquote(parts.path))


def test_the_files_that_a_manifest_names_hold_the_records(api: Api) -> None:
    topic, manifest = filled(api, 10, 10)
    assert set(manifest) == {
        "topic", "epoch", "head_seq", "earliest_seq", "evict_floor", "evict_reason", "holes",
        "segments", "pin", "performance",
    }  # fmt: skip
    assert manifest["pin"] is None
    assert manifest["epoch"] == api.state(topic)["epoch"]
    for segment in manifest["segments"]:
        with path_of(segment["location"]["data"]).open("rb") as file:
            data = bytes(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))[: segment["bytes"]]
        idx, end, whole = index_segment(data, segment["first_seq"])
        assert whole
        assert end == segment["bytes"]
        stored = path_of(segment["location"]["idx"]).read_bytes()
        assert stored[: len(idx)] == idx
        assert len(idx) == 20 * segment["records"]


def test_a_pin_is_given_renewed_and_released(api: Api) -> None:
    topic, _ = filled(api, 4, 4)
    pin = ok(api.get(f"topics/{topic}/segments", pin_ms=MINUTE_MS))["pin"]
    assert pin["expires_in_ms"] == MINUTE_MS
    metrics = api.client.get("/v0/metrics").text
    assert "topics_pins 0" not in metrics
    renewed = ok(api.post(f"pins/{pin['id']}", {"pin_ms": 2 * MINUTE_MS}))["pin"]
    assert renewed == {"id": pin["id"], "expires_in_ms": 2 * MINUTE_MS}
    assert ok(api.delete(f"pins/{pin['id']}"))["released"] is True
    refused(api.delete(f"pins/{pin['id']}"), 404, "not_found")
    refused(api.post(f"pins/{pin['id']}", {"pin_ms": 1}), 404, "not_found")


@pytest.mark.parametrize("pin_ms", ["0", "-1", "600001", "x", "1.5"])
def test_a_pin_out_of_bounds_is_refused(http1: Api, pin_ms: str) -> None:
    topic = fresh()
    http1.append(topic, 1)
    refused(http1.get(f"topics/{topic}/segments", pin_ms=pin_ms), 400, "invalid_request")


def test_a_renewal_out_of_bounds_is_refused(http1: Api) -> None:
    topic = fresh()
    http1.append(topic, 1)
    pin = ok(http1.get(f"topics/{topic}/segments", pin_ms=MINUTE_MS))["pin"]
    for body in ({"pin_ms": 0}, {"pin_ms": 600_001}, {}):
        refused(http1.post(f"pins/{pin['id']}", body), 400, "invalid_request")


def test_frames_and_diff_say_the_same(api: Api) -> None:
    topic, _ = filled(api, 22, 12)
    api.append(topic, "tail")
    page = frames(api, topic)
    whole = api.diff(topic, limit=1000)
    assert sum(part.head.count for part in page.parts) == len(whole["records"]) == 23
    assert page.head.next_from_seq == whole["next_from_seq"]
    assert page.head.epoch == api.state(topic)["epoch"]
    cursor, counts = 0, 0
    while cursor < 23:
        page = frames(api, topic, from_seq=cursor, max_bytes=150)
        counts += sum(part.head.count for part in page.parts)
        assert page.head.next_from_seq > cursor
        cursor = page.head.next_from_seq
    assert counts == 23


def test_a_range_is_not_packed_for_those_who_accept_gzip(api: Api) -> None:
    topic = fresh()
    api.append(topic, "x" * 10_000)
    response = api.client.get(
        f"/v0/topics/{topic}/range", headers={"Accept-Encoding": "gzip, deflate"}
    )
    assert "content-encoding" not in response.headers
    assert decode_range(response.content).parts[0].head.count == 1


def test_a_large_range_arrives_whole(api: Api) -> None:
    topic = fresh()
    for _ in range(4):
        api.append(topic, *("x" * 100_000 for _ in range(8)))
    page = frames(api, topic)
    assert sum(part.head.count for part in page.parts) == 32
    assert sum(part.head.data_bytes for part in page.parts) > 3_200_000


def test_another_epoch_is_refused(api: Api) -> None:
    topic = fresh()
    api.append(topic, 1)
    epoch = api.state(topic)["epoch"]
    ok(api.delete(f"topics/{topic}"))
    api.append(topic, 1)
    detail = refused(
        api.get(f"topics/{topic}/range", epoch=epoch), 409, "topic_exists_incompatible"
    )
    assert detail == {"epoch": api.state(topic)["epoch"], "reason": "recreated"}


def test_loss_is_told_in_the_head(api: Api) -> None:
    topic = fresh()
    api.create(topic, cap_records=2)
    for i in range(5):
        api.append(topic, i)
    found = frames(api, topic).head.tombstone
    assert found is not None
    assert (found.gap_from, found.gap_to, found.reason) == (1, 3, "cap")


def test_the_copies_of_a_router_are_there_when_asked_for(http1: Api) -> None:
    source, dest = fresh("src"), fresh("dst")
    http1.create(source)
    ok(http1.put(f"routers/{source}->{dest}", {"source": source, "dest": dest}), 201)
    http1.append(source, 1, 2, 3)
    assert sum(part.head.count for part in frames(http1, dest).parts) == 3
    http1.append(source, 4)
    assert ok(http1.get(f"topics/{dest}/segments"))["head_seq"] == 4


def test_cold_segments_are_compacted(http1: Api) -> None:
    topic = fresh("cold")
    for i in range(14):
        http1.append_records(topic, [{"data": i, "tag": f"r:{i % 4}"}])
    for _ in range(2000):
        if http1.state(topic)["cold_segments"]:
            break
    for residue in (0, 1, 2):
        ok(http1.post(f"topics/{topic}/delete", {"match": f"r:{residue}"}))
    before = http1.data(topic)
    done = ok(http1.post(f"topics/{topic}/compact", {"tier": "cold", "min_dead_ratio": 0.5}))
    assert done["topic"] == topic
    assert done["rewritten"] >= 1
    assert done["remaining"] == 0
    assert done["freed_bytes"] > 0
    assert http1.data(topic) == before
    again = ok(http1.post(f"topics/{topic}/compact"))
    assert (again["rewritten"], again["freed_bytes"]) == (0, 0)


@pytest.mark.parametrize(
    "body", [{"tier": "hot"}, {"min_dead_ratio": 2}, {"min_dead_ratio": -1}, {"max_segments": 0}]
)
def test_a_compaction_of_what_cannot_be_is_refused(http1: Api, body: Reply) -> None:
    topic = fresh()
    http1.append(topic, 1)
    refused(http1.post(f"topics/{topic}/compact", body), 400, "invalid_request")


def test_a_topic_that_is_not_there_has_no_files(http1: Api) -> None:
    refused(http1.get("topics/nobody/segments"), 404, "topic_not_found")
    refused(http1.get("topics/nobody/range"), 404, "topic_not_found")
    refused(http1.post("topics/nobody/compact"), 404, "topic_not_found")


def test_a_pin_of_one_key_is_nothing_to_another(tmp_path: Path) -> None:
    keys = "key-one-000000000000:r:a.,key-two-000000000000:r:a.,key-own-000000000000"
    with ServerProcess(str(tmp_path / "data"), keys=keys) as process:
        one, two, own = (
            open_client(process.url, key=f"key-{name}-000000000000")
            for name in ("one", "two", "own")
        )
        with one, two, own:
            Api(own).append("a.t", 1)
            pin = ok(one.get("/v0/topics/a.t/segments", params={"pin_ms": MINUTE_MS}))["pin"]
            path = f"/v0/pins/{pin['id']}"
            for other in (two, own):
                refused(other.post(path, json={"pin_ms": 1}), 404, "not_found")
                refused(other.delete(path), 404, "not_found")
            ok(one.post(path, json={"pin_ms": MINUTE_MS}))
            ok(one.delete(path))


def test_a_partitioned_topic_is_read_partition_by_partition(http1: Api) -> None:
    topic = fresh("parts")
    http1.create(topic, partitions=2)
    for response in (
        http1.get(f"topics/{topic}/segments"),
        http1.get(f"topics/{topic}/range"),
        http1.post(f"topics/{topic}/compact"),
    ):
        detail = refused(response, 409, "topic_exists_incompatible")
        assert detail["partitions"] == [f"{topic}-0", f"{topic}-1"]
    for partition in (f"{topic}-0", f"{topic}-1"):
        assert ok(http1.get(f"topics/{partition}/segments"))["head_seq"] == 0
        assert frames(http1, partition).parts == ()
    refused(http1.post("uploads", {"topic": topic}), 409, "topic_exists_incompatible")
    refused(http1.post("uploads", {"topic": f"{topic}-9"}), 409, "topic_exists_incompatible")
    body = {"topic": fresh(), "config": {"partitions": 2}}
    refused(http1.post("uploads", body), 400, "invalid_request")
