"""Bulk loading over HTTP: files of another process become a topic."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
import pytest
from tests.conformance.api import Api, Reply, fresh, ok, open_client, refused

from topics.testing.built_segments import build_segment
from topics.testing.server_process import ServerProcess

TS = 1_690_000_000_000


def begin(api: Api, topic: str, **config: object) -> Reply:
    return ok(api.post("uploads", {"topic": topic, "config": config}), 201)


def build(upload: Reply, *sizes: int) -> list[Reply]:
    """Write segments into the directory of an upload, as an executor does."""
    directory = Path(unquote(urlsplit(upload["directory"]).path))
    segments, seq = [], 1
    for size in sizes:
        records = [{"data": seq + i} for i in range(size)]
        built = build_segment(records, topic_id=upload["topic_id"], first_seq=seq, ts=TS)
        for name, content in built.files():
            (directory / name).write_bytes(content)
        segments.append(msgspec.to_builtins(built.segment))
        seq += size
    return segments


def test_a_topic_is_loaded_whole(api: Api) -> None:
    topic = fresh("load")
    upload = begin(api, topic, durability="fsync")
    assert set(upload) == {
        "upload", "topic", "topic_id", "directory", "expires_in_ms", "performance",
    }  # fmt: skip
    segments = build(upload, 5, 3)
    refused(api.get(f"topics/{topic}"), 404, "topic_not_found")
    attached = ok(api.post(f"uploads/{upload['upload']}/attach", {"segments": segments}), 201)
    assert attached["head_seq"] == attached["records"] == 8
    assert (attached["segments"], attached["epoch"]) == (2, upload["topic_id"])
    assert api.data(topic) == list(range(1, 9))
    assert api.append(topic, "next")["first_seq"] == 9
    refused(
        api.post(f"uploads/{upload['upload']}/attach", {"segments": segments}), 404, "not_found"
    )


def test_a_loaded_topic_survives_a_kill_and_what_is_staged_does_not(tmp_path: Path) -> None:
    with ServerProcess(str(tmp_path / "data")) as process:
        with open_client(process.url) as client:
            api = Api(client)
            upload, staged = begin(api, "loaded"), begin(api, "staged")
            body = {"segments": build(upload, 5, 3)}
            ok(api.post(f"uploads/{upload['upload']}/attach", body), 201)
            left = {"segments": build(staged, 2)}
        process.kill9()
        process.start()
        with open_client(process.url) as client:
            api = Api(client)
            assert api.data("loaded") == list(range(1, 9))
            assert list((tmp_path / "data" / "topics").iterdir()) == [
                tmp_path / "data" / "topics" / f"{upload['topic_id']:016x}"
            ]
            assert not (tmp_path / "data" / "uploads").exists()
            refused(api.post(f"uploads/{staged['upload']}/attach", left), 404, "not_found")


def test_what_is_wrong_is_refused_and_may_be_mended(api: Api) -> None:
    topic = fresh("load")
    upload = begin(api, topic)
    segments = build(upload, 4)
    path = f"uploads/{upload['upload']}/attach"
    for wrong in (
        {"xxh3_data": "0" * 16},
        {"xxh3_idx": "0" * 16},
        {"bytes": 1},
        {"first_seq": 2},
        {"last_seq": 5},
        {"xxh3_data": "short"},
    ):
        refused(api.post(path, {"segments": [segments[0] | wrong]}), 400, "invalid_request")
    refused(api.post(path, {"segments": []}), 400, "invalid_request")
    refused(api.get(f"topics/{topic}"), 404, "topic_not_found")
    ok(api.post(path, {"segments": segments}), 201)


def test_a_topic_that_is_there_is_refused(api: Api) -> None:
    topic = fresh("load")
    upload = begin(api, topic)
    segments = build(upload, 2)
    api.create(topic)
    detail = refused(api.post("uploads", {"topic": topic}), 409, "topic_exists_incompatible")
    assert detail == {"reason": "exists"}
    path = f"uploads/{upload['upload']}/attach"
    refused(api.post(path, {"segments": segments}), 409, "topic_exists_incompatible")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"topic": "no spaces"},
        {"topic": "q", "config": {"type": "queue"}},
        {"topic": "q", "config": {"durability": "ephemeral"}},
        {"topic": "q", "config": {"unknown": 1}},
    ],
)
def test_an_upload_of_what_cannot_be_is_refused(http1: Api, body: Reply) -> None:
    refused(http1.post("uploads", body), 400, "invalid_request")


def test_an_upload_can_be_given_up(api: Api) -> None:
    upload = begin(api, fresh("load"))
    build(upload, 2)
    directory = Path(unquote(urlsplit(upload["directory"]).path))
    (directory / "_temporary").mkdir()
    (directory / "_temporary" / "attempt").write_text("half")
    assert ok(api.delete(f"uploads/{upload['upload']}"))["deleted"] is True
    assert not directory.exists()
    refused(api.delete(f"uploads/{upload['upload']}"), 404, "not_found")


def test_an_upload_of_one_key_is_nothing_to_another(tmp_path: Path) -> None:
    keys = "key-one-000000000000::a.,key-two-000000000000::a.,key-own-000000000000"
    with ServerProcess(str(tmp_path / "data"), keys=keys) as process:
        one, two, own = (
            open_client(process.url, key=f"key-{name}-000000000000")
            for name in ("one", "two", "own")
        )
        with one, two, own:
            refused(one.post("/v0/uploads", json={"topic": "b.t"}), 403, "forbidden")
            upload = begin(Api(one), "a.t")
            body = {"segments": build(upload, 2)}
            path = f"/v0/uploads/{upload['upload']}"
            for other in (two, own):
                refused(other.post(f"{path}/attach", json=body), 404, "not_found")
                refused(other.delete(path), 404, "not_found")
            ok(one.post(f"{path}/attach", json=body), 201)
