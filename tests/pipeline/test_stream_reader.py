"""The part of a stream that lives on the driver, without a session."""

import json
import threading
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.answers import Answers, refusal, reply
from tests.pipeline.feed import Feed

from topics.client.request import Request, Response
from topics.client.settings import ClientSettings
from topics.client.sync_transport import SyncTransport
from topics.clock import SystemClock
from topics.errors import DataLoss, TopicNotFound
from topics.pipeline.options import SourceOptions
from topics.pipeline.server import Server
from topics.testing.manual_clock import ManualClock

datasource = pytest.importorskip("pyspark.sql.streaming.datasource")

from topics.pipeline.read import TaskPartition  # noqa: E402 - needs pyspark, checked above
from topics.pipeline.stream import TopicsStreamReader  # noqa: E402 - needs pyspark, checked above

SCHEMA = pa.schema([("topic", pa.string()), ("seq", pa.int64()), ("gap_reason", pa.string())])
ALL = datasource.ReadAllAvailable()


def reader(feed: Feed, *names: str, **options: Any) -> TopicsStreamReader:  # noqa: ANN401 - any option
    given = SourceOptions(
        url=feed.url, topics=names or (feed.topic,), starting="earliest", **options
    )
    return TopicsStreamReader(given, SCHEMA)


def rows(opened: TopicsStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    return [
        row
        for partition in opened.partitions(start, end)
        for batch in opened.read(partition)
        for row in batch.to_pylist()
    ]


def settings_of(url: str) -> ClientSettings:
    return ClientSettings(url, token="", timeout_s=30.0, retry_for_s=0.0, ssl_context=None)


def pins(feed: Feed) -> int:
    metrics = feed.call("GET", "/v0/metrics", headers={"Accept": "application/json"})
    count: int = metrics["topics_pins"]
    return count


def test_offsets_go_from_the_first_record_to_the_last(feed: Feed) -> None:
    feed.number(12)
    opened = reader(feed)
    epoch = feed.manifest()["epoch"]
    start = opened.initialOffset()
    assert start == {feed.topic: {"epoch": epoch, "next_from_seq": 0}}
    end = opened.latestOffset(start, ALL)
    assert end == opened.reportLatestOffset() == {feed.topic: {"epoch": epoch, "next_from_seq": 12}}
    limited = opened.latestOffset(start, datasource.ReadMaxRows(5))
    assert limited[feed.topic]["next_from_seq"] == 5
    assert [row["seq"] for row in rows(opened, limited, end)] == list(range(6, 13))
    opened.stop()


def test_available_now_ends_where_it_began(feed: Feed) -> None:
    feed.number(5)
    opened = reader(feed)
    opened.prepareForTriggerAvailableNow()
    feed.number(5, start=5)
    end = opened.latestOffset(opened.initialOffset(), ALL)
    assert end[feed.topic]["next_from_seq"] == 5
    assert opened.latestOffset(end, ALL) == end
    opened.stop()


def test_an_idle_stream_is_woken_by_a_record(feed: Feed) -> None:
    feed.number(5)
    opened = reader(feed)
    end = opened.latestOffset(opened.initialOffset(), ALL)
    assert opened.latestOffset(end, ALL) == end
    found: list[dict[str, Any]] = []

    def ask() -> None:
        while not found:
            later = opened.latestOffset(end, ALL)
            if later != end:
                found.append(later)

    waiting = threading.Thread(target=ask)
    waiting.start()
    feed.number(1, start=5)
    waiting.join(30)
    assert found[0][feed.topic]["next_from_seq"] == 6
    opened.stop()


def test_a_stream_without_any_topic_yet_does_not_ask_without_a_pause(feed: Feed) -> None:
    clock = ManualClock()
    given = SourceOptions(url=feed.url, topics=(f"{feed.topic}.*",), starting="earliest")
    opened = TopicsStreamReader(given, SCHEMA, clock)
    before_s = clock.monotonic_s()
    assert opened.latestOffset(opened.initialOffset(), ALL) == {}
    assert clock.monotonic_s() - before_s >= 0.2
    feed.number(3, topic=f"{feed.topic}.new")
    assert opened.latestOffset({}, ALL)[f"{feed.topic}.new"]["next_from_seq"] == 3
    opened.stop()


def test_a_topic_of_a_list_that_is_gone_is_told_and_the_others_go_on(feed: Feed) -> None:
    other = f"{feed.topic}.other"
    feed.number(5)
    feed.number(5, topic=other)
    lenient = reader(feed, feed.topic, other, fail_on_data_loss=False)
    strict = reader(feed, feed.topic, other)
    start = lenient.latestOffset(lenient.initialOffset(), ALL)
    feed.drop()
    feed.number(2, start=5, topic=other)
    with pytest.raises(TopicNotFound):
        strict.latestOffset(start, ALL)
    end = lenient.latestOffset(start, ALL)
    assert set(end) == {other}
    assert rows(lenient, start, end) == [
        {"topic": other, "seq": 6, "gap_reason": None},
        {"topic": other, "seq": 7, "gap_reason": None},
        {"topic": feed.topic, "seq": None, "gap_reason": "deleted"},
    ]
    with pytest.raises((DataLoss, TopicNotFound)):
        strict.partitions(start, end)
    lenient.stop()
    strict.stop()


def test_a_batch_pins_its_files_until_the_next_one(feed: Feed) -> None:
    feed.number(150)
    feed.wait_for_sealed(1)
    opened = reader(feed)
    start = opened.initialOffset()
    before = pins(feed)
    (partition,) = opened.partitions(start, opened.latestOffset(start, ALL))
    assert isinstance(partition, TaskPartition)
    assert len(partition.pins) == 1
    assert pins(feed) == before + 1
    end = opened.latestOffset(start, ALL)
    assert len(rows(opened, start, end)) == 150
    assert pins(feed) == before + 1
    opened.stop()
    assert pins(feed) == before


@pytest.mark.parametrize("refused", [None, refusal(409, "x"), refusal(404, "topic_not_found")])
def test_a_group_is_told_when_a_batch_is_done_and_may_refuse(
    feed: Feed, refused: Response | None
) -> None:
    feed.number(3)
    opened = reader(feed, group="readers")
    told: list[Any] = []
    wire = SyncTransport(settings_of(feed.url), SystemClock())

    def answer(request: Request) -> Response:
        if request.path != "/v0/groups/readers/commit":
            return wire.send(request, 30.0)
        told.append(json.loads(request.body or b""))
        return refused or reply({})

    opened._server = Server(feed.url, transport=Answers(answer))
    start = opened.initialOffset()
    end = opened.latestOffset(start, datasource.ReadMaxRows(2))
    opened.partitions(start, end)
    assert told == []
    later = opened.latestOffset(end, ALL)
    assert told == [{"offsets": {feed.topic: {"0": 2}}}]
    assert later[feed.topic]["next_from_seq"] == 3
    opened.latestOffset(end, ALL)
    assert len(told) == 1
    opened.stop()
    wire.close()


def test_the_smaller_of_two_limits_counts(feed: Feed) -> None:
    feed.number(100)
    size = sum(segment["bytes"] for segment in feed.manifest()["segments"]) // 100
    opened = reader(feed, max_records_per_trigger=10, max_bytes_per_trigger=4 * max(size, 40))
    start = opened.initialOffset()
    assert opened.getDefaultReadLimit() == datasource.ReadMaxRows(10)
    found = opened.latestOffset(start, opened.getDefaultReadLimit())
    assert 1 <= found[feed.topic]["next_from_seq"] < 10
    few = opened.latestOffset(start, datasource.ReadMaxRows(1))
    assert few[feed.topic]["next_from_seq"] == 1
    assert opened.latestOffset(start, ALL)[feed.topic]["next_from_seq"] == 100
    opened.stop()


def test_a_group_of_the_server_shows_how_far_a_stream_is(feed: Feed) -> None:
    feed.create(partitions=2)
    feed.append([{"data": n, "key": f"k{n}"} for n in range(20)])
    opened = reader(feed, group=f"{feed.topic}.group")
    start = opened.initialOffset()
    assert set(start) == {f"{feed.topic}-0", f"{feed.topic}-1"}
    end = opened.latestOffset(start, ALL)
    assert len(rows(opened, start, end)) == 20
    assert opened.latestOffset(end, ALL) == end
    shown = feed.call("GET", f"/v0/groups/{feed.topic}.group")
    heads = {int(name[-1]): place["next_from_seq"] for name, place in end.items()}
    assert sum(heads.values()) == 20
    assert {one["partition"]: one["committed"] for one in shown["partitions"]} == heads
    assert shown["lag_total"] == 0
    opened.stop()
