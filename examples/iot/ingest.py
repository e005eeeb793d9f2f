"""Sensors that report, simulated: many single records, sent as few batches.

    ingest.py [--sensors 100] [--seconds 10] [--seed 1]

Each record is ten samples of one sensor. The key says which partition it goes to, so that all
records of a sensor stay in order; the producer repeats nothing when it has to send again.
"""

import argparse
import math
import random
import time

import topics

TOPIC = "readings"
PARTITIONS = 4
SAMPLES = 10


def take_samples(chance: random.Random, *, sensor: int, tick: int) -> list[float]:
    """Return temperatures around a slow wave; sensor 7 runs hot."""
    middle = 20 + 5 * math.sin(tick / 10) + (60 if sensor == 7 else 0)
    return [round(chance.gauss(middle, 1), 2) for _ in range(SAMPLES)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Simulate sensors.")
    parser.add_argument("--sensors", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    sent = 0
    with topics.Topics() as client:
        client.create(TOPIC, partitions=PARTITIONS)
        end_s = time.monotonic() + arguments.seconds
        with client.producer(TOPIC, linger_ms=20) as producer:
            tick = 0
            while time.monotonic() < end_s:
                for sensor in range(arguments.sensors):
                    samples = take_samples(chance, sensor=sensor, tick=tick)
                    producer.send({"tick": tick, "celsius": samples}, key=f"sensor-{sensor}")
                    sent += 1
                tick += 1
                time.sleep(0.1)
    print(f"sent {sent} records", flush=True)


if __name__ == "__main__":
    main()
