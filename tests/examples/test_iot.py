"""`examples/iot`: every reading is summed up once, by however many, and however they end."""

from collections import Counter

from tests.examples.program import Program

from topics.client import Topics
from topics.model.diff import Record
from topics.testing.forked_server import ForkedServer


def test_every_reading_is_summed_up_once_although_a_consumer_is_killed(
    topics_server: ForkedServer, topics_client: Topics
) -> None:
    url = topics_server.url
    with Program("iot/ingest.py", "--sensors", "20", "--seconds", "1", url=url) as ingest:
        sent = int(ingest.expect(r"sent (\d+) records")[1])
        assert ingest.finish() == 0
    topics_client.create("summaries")
    with Program("iot/aggregate.py", url=url) as killed:
        summaries = topics_client.topic("summaries").tail(from_seq=0)
        next(item for item in summaries if isinstance(item, Record))
        killed.kill9()
    (member,) = topics_client.group_state("summaries").members
    topics_client.leave("summaries", member=member.member)  # sooner than its session ends
    with Program("iot/aggregate.py", "--once", url=url) as once:
        once.expect(r"summed up \d+ records")
        assert once.finish() == 0
    found = [
        item
        for item in topics_client.topic("summaries").read(from_seq=0)
        if isinstance(item, Record)
    ]
    assert len(found) == sent
    by_sensor = Counter(item.tag for item in found)
    assert len(by_sensor) == 20
    assert set(by_sensor.values()) == {sent // 20}
    assert topics_client.group_state("summaries").lag_total == 0
    assert 0 < topics_client.state("alarms").count <= by_sensor["sensor-7"]
