"""`topics demo`: a lively little shop, so that every page of the console has something to show.

Orders with partitions and a group that bills them, a queue of mails with workers (some mails fail),
a stream of sensors, and routers that copy the hottest and the coldest of them. It ends by itself.
"""

import logging
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topics.cli.connect import AsJson, ContextName, Url, connect
from topics.cli.output import for_people, print_line, say
from topics.clock import Clock, SystemClock

if TYPE_CHECKING:
    from topics.client import Topics

ORDERS, MAILS, SENSORS, HOT = "demo.orders", "demo.mails", "demo.sensors", "demo.sensors.hot"
COLD, ALARMS = "demo.sensors.cold", "demo.alarms"
DEAD, GROUP = "demo.mails.dead", "demo.billing"
TICK_S = 0.1
BILL_EVERY_S = 0.5
LARGE_FROM = 80

Seconds = Annotated[float, typer.Option("--seconds", min=0.1, help="how long")]
Rate = Annotated[float, typer.Option("--rate", min=1, help="records a second, about")]
Seed = Annotated[int, typer.Option("--seed", help="the same seed makes the same records")]


def run_demo(
    *,
    url: Url = None,
    context: ContextName = None,
    seconds: Seconds = 60.0,
    rate: Rate = 50.0,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Feed a server with a sample workload for a while: a shop, its mails, some sensors."""
    # Some mails fail, and are meant to: no traceback for each of them.
    logging.getLogger("topics.worker").setLevel(logging.CRITICAL)
    with connect(url, context) as client:
        prepare(client)
        say(f"feeding {client.url} for {seconds:g} s: {ORDERS}, {MAILS}, {SENSORS}")
        with _helpers(lambda: connect(url, context)):
            count = feed(client, random.Random(seed), seconds=seconds, rate=rate)
    if for_people(as_json=as_json):
        typer.echo(f"{count:,} records written")
    else:
        print_line({"records": count})


def prepare(client: "Topics") -> None:
    """Make the topics, the queue and the router; fine where they are there."""
    client.create(ORDERS, partitions=4)
    client.create(DEAD)
    client.create(MAILS, type="queue", lease_ms=5_000, max_deliveries=3, dead_letter=DEAD)
    client.create(SENSORS, ttl_ms=3_600_000)
    client.put_router("demo.sensors->hot", source=SENSORS, dest=HOT, filter="sensor:5")
    client.put_router("demo.sensors->cold", source=SENSORS, dest=COLD, filter="sensor:0")
    client.put_router("demo.hot->alarms", source=HOT, dest=ALARMS)


def feed(
    client: "Topics",
    chance: random.Random,
    *,
    seconds: float,
    rate: float,
    clock: Clock | None = None,
) -> int:
    """Write until the time is over; return how many records."""
    clock = clock or SystemClock()
    end_s = clock.monotonic_s() + seconds
    written = 0
    due = 0.0
    while clock.monotonic_s() < end_s:
        due += rate * TICK_S
        batches: dict[str, list[dict[str, Any]]] = {}
        while due >= 1:
            due -= 1
            topic, record = make_record(chance, written)
            batches.setdefault(topic, []).append(record)
            written += 1
        for topic, records in batches.items():
            client.append(topic, records)
        clock.sleep(TICK_S)
    return written


def make_record(chance: random.Random, number: int) -> tuple[str, dict[str, Any]]:
    """Make one record of the shop, and say where it goes."""
    kind = chance.choices((ORDERS, SENSORS, MAILS), weights=(4, 5, 1))[0]
    customer = f"customer-{chance.randrange(40)}"
    if kind == ORDERS:
        total = round(chance.expovariate(1 / 40), 2)
        size = "large" if total >= LARGE_FROM else "small"
        data: dict[str, Any] = {"order": number, "customer": customer, "total": total}
        return kind, {"data": data, "key": customer, "tag": f"order:{size}"}
    if kind == SENSORS:
        sensor = chance.randrange(6)
        data = {"sensor": sensor, "celsius": round(chance.gauss(20 + sensor, 1.5), 2)}
        return kind, {"data": data, "tag": f"sensor:{sensor}"}
    return kind, {"data": {"to": customer, "fails": chance.random() < 0.1}, "tag": "mail"}


@contextmanager
def _helpers(open_client: "Callable[[], Topics]") -> Iterator[None]:
    """Run the workers of the queue and the group that bills orders in threads until the end."""
    with open_client() as mails, open_client() as billing, open_client() as more_billing:
        worker = mails.queue(MAILS).worker(concurrency=2, backoff_ms=200)(_send_mail)
        over = threading.Event()
        threads = [
            threading.Thread(target=worker.run, name="demo-mails"),
            threading.Thread(target=_bill, args=(billing, "billing-1", over)),
            threading.Thread(target=_bill, args=(more_billing, "billing-2", over)),
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            worker.stop()
            over.set()
            for thread in threads:
                thread.join()


def _bill(client: "Topics", member: str, over: threading.Event) -> None:
    """Read all orders there are, again and again, and stay in the group meanwhile."""
    with client.consumer(GROUP, [ORDERS], member=member, until_caught_up=True) as orders:
        while not over.wait(BILL_EVERY_S):
            for _ in orders:
                pass


def _send_mail(job: Any) -> None:  # noqa: ANN401 - any JSON
    if job.data["fails"]:
        raise MailBounced


class MailBounced(Exception):
    """A mail that cannot be delivered, so that the queue has something to show."""
