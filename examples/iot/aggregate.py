"""Sum up what sensors report; start it more than once and the partitions are shared.

    aggregate.py [--once]

Every record becomes a summary in the topic `summaries`, by its sensor's tag, and an alarm in the
topic `alarms` where it was too hot. A consumer that dies leaves records that come again: the
`idempotency_key` of a summary is the place of its record, so that it is written once all the same.
"""

import argparse
from statistics import fmean

import msgspec

import topics
from topics.model.stream import GroupRecord

TOPIC = "readings"
GROUP = "summaries"
TOO_HOT_CELSIUS = 60.0


class Reading(msgspec.Struct):
    """What a sensor sends."""

    tick: int
    celsius: list[float]


def sum_up(reading: Reading) -> dict[str, float]:
    return {
        "tick": reading.tick,
        "min": min(reading.celsius),
        "mean": round(fmean(reading.celsius), 2),
        "max": max(reading.celsius),
    }


def handle(client: topics.Topics, item: GroupRecord[Reading]) -> None:
    place = f"{item.topic}-{item.partition}:{item.seq}"
    summary = sum_up(item.data)
    record = {"data": summary, "tag": item.tag}
    client.append("summaries", [record], idempotency_key=place)
    if summary["max"] > TOO_HOT_CELSIUS:
        client.append("alarms", [record], idempotency_key=place)


def main() -> None:
    parser = argparse.ArgumentParser(description="Sum up what sensors report.")
    parser.add_argument("--once", action="store_true", help="end when nothing is left to read")
    arguments = parser.parse_args()
    done = 0
    with topics.Topics() as client:
        consumer = client.consumer(GROUP, [TOPIC], model=Reading, until_caught_up=arguments.once)
        with consumer:
            for item in consumer:
                if isinstance(item, GroupRecord):
                    handle(client, item)
                    done += 1
                else:
                    print(f"lost {item.topic} {item.partition}: {item.gap_from} to {item.gap_to}")
    print(f"summed up {done} records", flush=True)


if __name__ == "__main__":
    main()
