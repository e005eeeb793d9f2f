"""`examples/webhooks`: a flaky receiver gets all; a hopeless event dies, and is brought back."""

import httpx
from tests.examples.program import Program

from topics.client import Topics
from topics.model.diff import Record
from topics.testing.forked_server import ForkedServer


def wait_for_letter(client: Topics) -> object:
    client.create("hooks.dead")
    items = client.topic("hooks.dead").tail(from_seq=0)
    return next(item.data for item in items if isinstance(item, Record))


def test_events_reach_their_hooks_and_dead_letters_come_back(
    topics_server: ForkedServer, topics_client: Topics
) -> None:
    url = topics_server.url
    with Program("webhooks/receiver.py", "--port", "0", "--refuse", "bad", url=url) as receiver:
        base = receiver.expect(r"http://[\d.:]+")[0]
        hooks = [f"orders={base}/flaky", f"users={base}/users"]
        deliver = Program("webhooks/deliver.py", *hooks, "--backoff-ms", "10", url=url)
        with deliver:
            deliver.expect("delivering")
            topics_client.append("events", [{"data": {"id": 1}, "tag": "orders.paid"}])
            receiver.expect(r'/flaky 503 {"id": 1}')
            receiver.expect(r'/flaky 204 {"id": 1}')
            names = [{"data": name, "tag": "users.new"} for name in ("bad", "ada")]
            topics_client.append("events", names)
            for _ in range(3):
                receiver.expect(r'/users 503 "bad"')
            assert wait_for_letter(topics_client) == "bad"
            receiver.kill9()
            port = base.rpartition(":")[2]
            with Program("webhooks/receiver.py", "--port", port, url=url) as recovered:
                recovered.expect("receiving")
                redrive = httpx.post(f"{url}/v0/topics/hooks.dead/redrive", json={})
                assert redrive.raise_for_status().json()["moved"] == 1
                recovered.expect(r'/users 204 "bad"')
                deliver.expect(r"delivered users.new \d+ at try 1")
                assert deliver.stop() == 0
    for queue in ("hooks.orders", "hooks.users", "hooks.dead"):
        assert topics_client.state(queue).count == 0
