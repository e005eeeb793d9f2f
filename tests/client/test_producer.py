"""A producer: few batches, in order, once, and no record without an answer."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import msgspec
import pytest
from tests.client.bad_server import reply, serving
from tests.client.faces import DEADLINE_S, fresh

from topics.client import AsyncTopics, Topics
from topics.errors import (
    Closed,
    PartlyWritten,
    RecordTooLarge,
    RequestError,
    Throttled,
    TopicFull,
    Unreachable,
)
from topics.handles.outbox import BATCH_BYTES, Entry, Outbox, Sent, encode_record
from topics.model.append import Appended
from topics.testing.server_process import ServerProcess


def appended(first_seq: int, count: int) -> bytes:
    last_seq = first_seq + count - 1
    fields = {"topic": "t", "first_seq": first_seq, "last_seq": last_seq, "head_seq": last_seq}
    return msgspec.json.encode({**fields, "count": count, "created": False, "deduped": False})


def bodies(requests: list[bytes]) -> list[dict[str, object]]:
    return [msgspec.json.decode(request.partition(b"\r\n\r\n")[2]) for request in requests]


def test_many_records_become_few_batches_in_order(client: Topics) -> None:
    name = fresh()
    with client.producer(name, linger_ms=20, max_batch=100) as producer:
        futures = [producer.send(n, tag=f"t{n}") for n in range(1000)]
    assert [future.result(0).seq for future in futures] == list(range(1, 1001))
    page = client.diff(name, limit=1000)
    assert [record.data for record in page.records] == list(range(1000))
    assert page.records[7].tag == "t7"


def test_an_awaited_producer_keeps_order_too(server: ServerProcess) -> None:
    async def run() -> tuple[list[int], list[object]]:
        name = fresh()
        async with AsyncTopics(server.url) as client:
            async with client.producer(name, max_batch=50) as producer:
                futures = [await producer.send(n) for n in range(500)]
                await producer.flush()
                seqs = [future.result().seq for future in futures]
            page = await client.diff(name, limit=1000)
            return seqs, [record.data for record in page.records]

    seqs, data = asyncio.run(run())
    assert seqs == list(range(1, 501))
    assert data == list(range(500))


def test_keys_decide_the_partition_and_order_holds_within_it(client: Topics) -> None:
    name = fresh()
    client.create(name, partitions=3)
    with client.producer(name, max_batch=50) as producer:
        futures = [producer.send(n, key=f"user{n % 5}") for n in range(200)]
    for n, future in enumerate(futures):
        sent = future.result(0)
        assert client.diff(sent.topic, from_seq=sent.seq - 1, limit=1).records[0].data == n
    assert len({future.result(0).topic for future in futures}) > 1
    for part in range(3):
        data = [record.data for record in client.diff(f"{name}-{part}", limit=1000).records]
        assert data == sorted(data)


def test_a_flush_does_not_wait_for_company(client: Topics) -> None:
    with client.producer(fresh(), linger_ms=3_600_000) as producer:
        future = producer.send(1)
        producer.flush()
        assert future.result(0).seq == 1
        assert producer.send(2).done() is False  # the close flushes it


def test_a_batch_is_resent_with_its_number() -> None:
    def script(connection: socket.socket, number: int) -> None:
        if number == 1:
            connection.shutdown(socket.SHUT_RDWR)
        else:
            connection.sendall(reply(200, appended(number - 1, 1)))

    with serving(script) as server, Topics(server.url) as client:
        with client.producer("t", linger_ms=0) as producer:
            assert producer.send("a").result(DEADLINE_S).seq == 1
            assert producer.send("b").result(DEADLINE_S).seq == 2
        first, again, second = bodies(server.requests)
    assert first == again
    assert (first["producer_seq"], second["producer_seq"]) == (1, 2)
    assert first["producer_id"] == second["producer_id"]


def test_a_refused_record_fails_alone(client: Topics) -> None:
    name = fresh()
    producer = client.producer(name, linger_ms=3_600_000)
    futures = [producer.send("x" * 2**20 if n == 5 else n) for n in range(9)]
    with pytest.raises(RecordTooLarge):
        producer.flush()
    assert isinstance(futures[5].exception(0), RecordTooLarge)
    producer.flush()  # an error is told once
    producer.close()
    data = [record.data for record in client.diff(name).records]
    assert data == [0, 1, 2, 3, 4, 6, 7, 8]


def test_what_some_partitions_took_of_a_batch_succeeds(client: Topics) -> None:
    name = fresh()
    client.create(name, partitions=3, cap_records=2, discard="reject")
    client.append(name, [{"data": 0, "key": "user1"}, {"data": 0, "key": "user1"}])
    producer = client.producer(name, linger_ms=3_600_000)
    futures = [producer.send(key, key=key) for key in ("user7", "user1", "user7", "user1")]
    with pytest.raises(TopicFull):
        producer.close()
    assert [futures[0].result(0), futures[2].result(0)] == [Sent(f"{name}-0", n) for n in (1, 2)]
    assert isinstance(futures[1].exception(0), TopicFull)
    assert isinstance(futures[3].exception(0), TopicFull)
    assert client.state(name).count == 4


def test_a_record_that_one_partition_refuses_fails_alone(client: Topics) -> None:
    name = fresh()
    client.create(name, partitions=3, cap_bytes=4_000, discard="reject")
    producer = client.producer(name, linger_ms=3_600_000)
    large = "x" * 4_000
    sent = [("user7", 1), ("user1", large), ("user1", 2), ("user7", 3)]
    futures = [producer.send(data, key=key) for key, data in sent]
    with pytest.raises(RecordTooLarge):
        producer.close()
    assert isinstance(futures[1].exception(0), RecordTooLarge)
    good = [futures[n].result(0) for n in (0, 2, 3)]
    assert good == [Sent(f"{name}-0", 1), Sent(f"{name}-2", 1), Sent(f"{name}-0", 2)]
    assert client.state(name).count == 3


def test_several_partitions_that_refuse_are_not_asked_again(client: Topics) -> None:
    name = fresh()
    client.create(name, partitions=3, cap_bytes=4_000, discard="reject")
    producer = client.producer(name, linger_ms=3_600_000)
    sent = [("user7", 1), ("user1", 4_000), ("user3", 4_000)]  # one a partition
    futures = [producer.send("x" * size, key=key) for key, size in sent]
    with pytest.raises(PartlyWritten):
        producer.close()
    assert futures[0].result(0).seq == 1
    assert all(isinstance(future.exception(0), PartlyWritten) for future in futures[1:])


def test_a_repeat_whose_seqs_are_forgotten_is_a_success() -> None:
    fields = {"topic": "t", "first_seq": 0, "last_seq": 0, "head_seq": 9, "count": 0}
    known = msgspec.json.encode({**fields, "created": False, "deduped": True})
    with (
        serving(lambda connection, _: connection.sendall(reply(200, known))) as server,
        Topics(server.url) as client,
        client.producer("t") as producer,
    ):
        assert producer.send(1).result(DEADLINE_S) == Sent("t", 0)


def test_what_is_no_json_is_refused_at_once(client: Topics) -> None:
    with client.producer(fresh()) as producer, pytest.raises(RequestError, match="JSON"):
        producer.send(object())


def test_the_first_error_is_told_by_the_close(client: Topics) -> None:
    name = fresh()
    client.create(name, cap_records=1, discard="reject")
    producer = client.producer(name, max_batch=1)
    good, bad = producer.send(1), producer.send(2)
    with pytest.raises(TopicFull):
        producer.close()
    assert good.result(0).seq == 1
    assert isinstance(bad.exception(0), TopicFull)
    with pytest.raises(Closed):
        producer.send(2)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nobody_waits_for_a_producer_that_broke(client: Topics) -> None:
    producer = client.producer(fresh(), linger_ms=3_600_000)

    def broken(_topic: str, _body: bytes) -> Appended:
        raise ZeroDivisionError

    producer._deliver = broken
    futures = [producer.send(n) for n in range(3)]
    with pytest.raises(Unreachable):
        producer.flush()
    assert all(isinstance(future.exception(0), Unreachable) for future in futures)
    producer._thread.join(DEADLINE_S)


def test_a_full_buffer_refuses_or_waits() -> None:
    may_answer = threading.Event()

    def script(connection: socket.socket, number: int) -> None:
        assert may_answer.wait(DEADLINE_S)
        connection.sendall(reply(200, appended(number, 1)))

    with (
        serving(script) as server,
        Topics(server.url) as client,
        client.producer("t", max_batch=1, buffer_bytes=40, when_full="raise") as producer,
        client.producer("t", max_batch=1, buffer_bytes=40) as patient,
    ):
        producer.send("x" * 20)
        with pytest.raises(Throttled):
            producer.send("y" * 20)
        patient.send("x" * 20)
        blocked = threading.Thread(target=patient.send, args=("y" * 20,))
        blocked.start()
        assert blocked.is_alive()
        may_answer.set()
        blocked.join(DEADLINE_S)
        assert not blocked.is_alive()


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(str(tmp_path / "data")) as process:
        yield process


@pytest.mark.crash
def test_kills_of_the_server_lose_and_repeat_nothing(mortal: ServerProcess) -> None:
    with Topics(mortal.url) as client:
        client.create("t", durability="fsync")
        with client.producer("t", linger_ms=1, max_batch=20) as producer:
            futures: list[Future[Sent]] = []
            for _life in range(3):
                futures += [producer.send(len(futures) + n) for n in range(200)]
                mortal.kill9()
                mortal.start()
        seqs = [future.result(0).seq for future in futures]
        data = {record.seq: record.data for record in client.diff("t", limit=1000).records}
    assert [data[seq] for seq in seqs] == list(range(600))
    assert len(data) == 600


def test_a_batch_is_cut_by_records_and_by_bytes() -> None:
    loop = asyncio.new_event_loop()
    outbox = Outbox(max_batch=3)
    for size in (1, 1, 1, 1, BATCH_BYTES, 1):
        outbox.add(Entry(encode_record("x" * size), loop.create_future()))
    assert [len(outbox.take_batch()) for _ in range(4)] == [3, 1, 1, 1]
    assert outbox.take_batch() == []
    loop.close()
