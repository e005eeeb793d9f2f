"""Files of topics over the client: named, held, read as frames, built and attached, compacted."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.client.faces import AnyLog, fresh, open_awaited

from topics.client import Topics
from topics.errors import PinNotFound, RequestError, TopicNotFound, TopicRecreated, UploadNotFound
from topics.storage.disk.local_disk import LocalDisk
from topics.testing.built_segments import build_segment, stage
from topics.testing.server_process import ServerProcess


@pytest.fixture(params=["http", "awaited"])
def remote(request: pytest.FixtureRequest, server: ServerProcess) -> Iterator[AnyLog]:
    if request.param == "http":
        with Topics(server.url) as client:
            yield client
        return
    with asyncio.Runner() as runner:
        awaited = open_awaited(runner, server.url)
        yield awaited
        awaited.close()


def test_files_are_named_held_and_let_go(remote: AnyLog) -> None:
    name = fresh()
    remote.append(name, [{"data": n} for n in range(5)])
    manifest = remote.manifest(name, pin_ms=60_000)
    assert (manifest.topic, manifest.head_seq) == (name, 5)
    assert remote.manifest(name).pin is None
    pin = manifest.pin.id
    assert 60_000 < remote.renew_pin(pin, pin_ms=90_000).expires_in_ms <= 90_000
    assert remote.release_pin(pin)
    with pytest.raises(PinNotFound):
        remote.renew_pin(pin, pin_ms=1_000)
    with pytest.raises(TopicNotFound):
        remote.manifest(fresh())


def test_a_range_comes_as_frames_of_one_life_of_a_topic(remote: AnyLog) -> None:
    name = fresh()
    remote.append(name, [{"data": n} for n in range(5)])
    epoch = remote.state(name).epoch
    page = remote.read_range(name, from_seq=1, to_seq=4, epoch=epoch)
    assert (page.head.topic, page.head.next_from_seq) == (name, 4)
    assert sum(part.head.count for part in page.parts) == 3
    with pytest.raises(TopicRecreated) as caught:
        remote.read_range(name, to_seq=4, epoch=epoch + 1)
    assert (caught.value.topic, caught.value.epoch) == (name, epoch)


def test_a_topic_begins_out_of_segments(remote: AnyLog, server: ServerProcess) -> None:
    name = fresh()
    upload = remote.begin_upload(name, durability="fsync")
    records = [{"data": n} for n in range(3)]
    built = build_segment(records, topic_id=upload.topic_id, first_seq=1, ts=1_000)
    assert Path(server.data_dir).is_dir()
    segments = stage(LocalDisk(server.data_dir), upload.upload, [built])
    attached = remote.attach(upload.upload, segments)
    assert (attached.topic, attached.epoch, attached.records) == (name, upload.topic_id, 3)
    assert [record.data for record in remote.diff(name).records] == [0, 1, 2]
    with pytest.raises(UploadNotFound):
        remote.abandon_upload(upload.upload)
    assert remote.abandon_upload(remote.begin_upload(fresh()).upload)
    with pytest.raises(RequestError):
        remote.begin_upload(fresh(), durabilty="fsync")


def test_an_operator_asks_for_less_and_for_readiness(remote: AnyLog) -> None:
    name = fresh()
    remote.append(name, [{"data": 1}])
    compacted = remote.compact(name, min_dead_ratio=0.1)
    assert (compacted.topic, compacted.rewritten, compacted.remaining) == (name, 0, 0)
    assert remote.ready().status == "ready"


def test_a_ticket_shows_its_word_only_to_who_asks(remote: AnyLog) -> None:
    ticket = remote.ticket()
    assert ticket.ticket
    assert ticket.ticket not in repr(ticket)
