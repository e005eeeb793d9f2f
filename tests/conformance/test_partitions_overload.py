"""Writes to partitions while the log is full: parts wait for room, nothing is lost or doubled."""

from concurrent.futures import ThreadPoolExecutor

from tests.conformance.api import Api, Reply, fresh, open_client

from topics.testing.server_process import ServerProcess

# Two writes at a time are more than may be queued.
SETTINGS = {"TOPICS_WAL_QUEUE_BYTES": "65536", "TOPICS_WAL_SHARDS": "1"}
WRITERS = 10
WRITES = 12
RECORDS = 60


def write(server: ServerProcess, topic: str, writer: int, *, keys: bool) -> list[Reply]:
    """Write one after the other; what is refused comes again if that doubles nothing."""
    told = []
    with open_client(server.url) as client:
        api = Api(client)
        for number in range(WRITES):
            name = f"{writer}/{number}"
            records = [
                {"data": f"{name}/{i}", "key": f"{name}/{i}", "meta": {"pad": "x" * 600}}
                for i in range(RECORDS)
            ]
            body: Reply = {"records": records}
            if keys:
                body["idempotency_key"] = name
            response = api.post(f"topics/{topic}", body)
            while response.status_code == 429 and (keys or "placements" not in response.text):
                response = api.post(f"topics/{topic}", body)
            reply = response.json()
            assert response.status_code in {200, 429}, reply
            told.append(reply if response.status_code == 200 else reply["error"]["detail"])
    return told


def overload(server: ServerProcess, http1: Api, *, keys: bool) -> None:
    topic = fresh("orders") + "x"
    http1.create(topic, partitions=8, durability="fsync")
    with ThreadPoolExecutor(WRITERS) as pool:
        writing = [
            pool.submit(write, server, topic, writer, keys=keys) for writer in range(WRITERS)
        ]
        told = [reply for future in writing for reply in future.result(60)]
    whole = [reply for reply in told if "performance" in reply]
    pairs = [tuple(pair) for reply in told for pair in reply["seqs"] if pair[1]]
    assert len(set(pairs)) == len(pairs), "a seq was given twice"
    assert all(all(seq for _, seq in reply["seqs"]) for reply in whole), "a record without a seq"
    written = sum(placement["count"] for reply in told for placement in reply["placements"])
    assert written == len(pairs) == http1.state(topic)["count"]
    assert not keys or written == WRITERS * WRITES * RECORDS
    assert any("throttle_wait_ms" in reply["performance"] for reply in whole), "nothing waited"


def test_writes_that_share_a_turn_wait_for_room(server: ServerProcess, http1: Api) -> None:
    overload(server, http1, keys=False)


def test_writes_with_keys_wait_for_room_and_are_made_once(
    server: ServerProcess, http1: Api
) -> None:
    overload(server, http1, keys=True)
