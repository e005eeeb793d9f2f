"""The WebSocket: the operations of watch and append over one connection."""

import json
from collections.abc import Iterator

import pytest
from tests.conformance.api import Api, Reply, fresh, ok, refused
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from topics.testing.server_process import ServerProcess

DEADLINE_S = 10.0


class Socket:
    """A connection that speaks operations."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def send(self, op: str, **fields: object) -> None:
        self.connection.send(json.dumps({"op": op, **fields}))

    def next(self) -> Reply:
        body: Reply = json.loads(self.connection.recv(DEADLINE_S))
        return body

    def next_of(self, *ops: str) -> Reply:
        while (message := self.next())["op"] not in ops:
            pass
        return message


@pytest.fixture
def socket(server: ServerProcess) -> Iterator[Socket]:
    url = server.url.replace("http", "ws") + "/v0/ws"
    with connect(url, compression=None, proxy=None) as connection:
        yield Socket(connection)


def test_a_ping_is_answered(socket: Socket) -> None:
    socket.send("ping", request_id="p-1")
    message = socket.next()
    assert (message["op"], message["request_id"]) == ("pong", "p-1")


def test_a_subscription_delivers_backlog_then_live(http1: Api, socket: Socket) -> None:
    topic = fresh()
    http1.append(topic, "a", "b")
    socket.send("subscribe", request_id="s-1", topics={topic: {"from_seq": 0}})
    subscribed = socket.next()
    assert (subscribed["op"], subscribed["request_id"]) == ("subscribed", "s-1")
    record = socket.next_of("record")
    assert [r["data"] for r in record["records"]] == ["a", "b"]
    assert (record["topic"], record["from_seq"], record["to_seq"]) == (topic, 0, 2)
    assert record["head_seq"] == 2
    caught_up = socket.next_of("caught_up")
    assert (caught_up["topic"], caught_up["head_seq"]) == (topic, 2)
    http1.append(topic, "c")
    assert [r["data"] for r in socket.next_of("record")["records"]] == ["c"]


def test_a_publish_is_acknowledged_and_stored(http1: Api, socket: Socket) -> None:
    topic = fresh()
    socket.send("publish", request_id=7, topic=topic, records=[{"data": 1}, {"data": 2}])
    ack = socket.next()
    assert (ack["op"], ack["request_id"]) == ("ack", 7)
    assert (ack["first_seq"], ack["last_seq"]) == (1, 2)
    assert http1.data(topic) == [1, 2]


def test_a_publish_with_a_key_is_written_once(http1: Api, socket: Socket) -> None:
    topic = fresh()
    for deduped in (False, True):
        socket.send("publish", topic=topic, records=[{"data": 1}], idempotency_key="k")
        assert socket.next()["deduped"] is deduped
    assert http1.state(topic)["head_seq"] == 1


def test_an_end_of_the_subscription_ends_the_records(http1: Api, socket: Socket) -> None:
    topic = fresh()
    http1.create(topic)
    socket.send("subscribe", topics={topic: {"from_seq": 0}})
    socket.next_of("subscribed")
    socket.send("unsubscribe", request_id="u", topics=[topic])
    assert socket.next_of("unsubscribed")["request_id"] == "u"
    http1.append(topic, 1)
    socket.send("ping", request_id="after")
    seen = []
    while (message := socket.next())["op"] != "pong":
        seen.append(message["op"])
    assert "record" not in seen


def test_loss_and_the_end_of_a_topic_are_told(http1: Api, socket: Socket) -> None:
    topic = fresh()
    http1.create(topic, cap_records=1)
    http1.append(topic, 1)
    http1.append(topic, 2)
    socket.send("subscribe", topics={topic: {"from_seq": 0}})
    tombstone = socket.next_of("tombstone", "record")
    assert tombstone["op"] == "tombstone"
    assert (tombstone["gap_from"], tombstone["gap_to"]) == (1, 1)
    socket.next_of("caught_up")
    ok(http1.delete(f"topics/{topic}"))
    assert socket.next_of("topic_deleted")["topic"] == topic


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"op": "subscribe", "topics": {"absent-topic": {"from_seq": 0}}}, "topic_not_found"),
        ({"op": "subscribe", "topics": {}}, "invalid_request"),
        ({"op": "subscribe"}, "invalid_request"),
        ({"op": "publish", "topic": "x", "records": []}, "invalid_request"),
        ({"op": "publish", "topic": "no good", "records": [{"data": 1}]}, "invalid_request"),
        ({"op": "publish", "records": [{"data": 1}]}, "invalid_request"),
        ({"op": "dance"}, "invalid_request"),
        ({}, "invalid_request"),
    ],
)
def test_a_bad_operation_is_an_error_and_the_connection_goes_on(
    socket: Socket, message: Reply, code: str
) -> None:
    socket.connection.send(json.dumps({**message, "request_id": "r"}))
    error = socket.next()
    assert (error["op"], error["request_id"], error["code"]) == ("error", "r", code)
    assert error["message"]
    socket.send("ping", request_id="still there")
    assert socket.next_of("pong")["request_id"] == "still there"


DEEP = '{"op":"ping","deep":' + "[" * 3_000 + "]" * 3_000 + "}"


@pytest.mark.parametrize("text", ["", "{", "[]", "1", '"x"', DEEP])
def test_text_that_is_no_operation_is_an_error(socket: Socket, text: str) -> None:
    socket.connection.send(text)
    error = socket.next()
    assert (error["op"], error["code"]) == ("error", "invalid_request")


def test_bytes_are_answered_or_refused(socket: Socket) -> None:
    socket.connection.send(b"\x00\x01")
    try:
        answer = socket.next()["op"]
    except ConnectionClosed:
        answer = "error"
    assert answer == "error"


def test_a_plain_request_is_no_websocket(http1: Api) -> None:
    response = http1.get("ws")
    assert response.status_code in {400, 406, 426}
    assert response.json()["error"]["code"]


def test_the_bytes_of_data_come_back(socket: Socket) -> None:
    topic = fresh()
    data = '{"z":1.50e+2,"a":"\\u0041\\/"}'
    socket.connection.send(
        f'{{"op":"publish","topic":"{topic}","records":[{{"data":{data}}}],"request_id":"b"}}'
    )
    socket.next_of("ack")
    socket.send("subscribe", topics={topic: {"from_seq": 0}})
    while '"op":"record"' not in (text := str(socket.connection.recv(DEADLINE_S))):
        pass
    assert f'"data":{data}' in text


def test_a_topic_that_is_not_there_stays_so(http1: Api, socket: Socket) -> None:
    topic = fresh("absent")
    socket.send("publish", topic=topic, records=[{"data": 1}], create=False)
    assert socket.next()["code"] == "topic_not_found"
    refused(http1.get(f"topics/{topic}"), 404, "topic_not_found")
