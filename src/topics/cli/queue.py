"""`topics queue`: jobs and those who work on them."""

import secrets
from collections import Counter
from itertools import islice
from typing import Annotated

import typer

from topics.cli.completion import complete_topics
from topics.cli.connect import AsJson, ContextName, DryRun, Url, connect
from topics.cli.output import fields_of, print_one, print_rows
from topics.cli.put import given_values, parse_value
from topics.cli.records import wire_record
from topics.cli.redrive import foresee, redrive

queue_app = typer.Typer(
    help="Look at queues; put, claim, ack and redrive jobs.", no_args_is_help=True
)

QueueName = Annotated[
    str, typer.Argument(metavar="QUEUE", help="its name", autocompletion=complete_topics)
]
Node = Annotated[str, typer.Option("--node", help="the name of the worker")]
COLUMNS = ("queue", "ready", "in_flight", "dead_lettered", "dead_letter")
PUT_JOBS = 1_000
"""Jobs of one write."""
JOB_COLUMNS = ("$seq", "lease_id", "deliveries", "$tag", "data")


@queue_app.command("ls")
def list_queues(
    prefix: Annotated[
        str, typer.Argument(help="only names that begin so", autocompletion=complete_topics)
    ] = "",
    *,
    as_json: AsJson = False,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """List queues and how many jobs they have."""
    with connect(url, context) as client:
        states = [client.state(name) for name in client.topics(prefix)]
    rows = [
        {"queue": state.topic, **fields_of(state.queue), "dead_letter": state.config.dead_letter}
        for state in states
        if state.queue is not None
    ]
    print_rows(rows, COLUMNS, as_json=as_json)


@queue_app.command("put")
def put_jobs(
    queue: QueueName,
    data: Annotated[
        list[str] | None, typer.Argument(metavar="[DATA]...", help="JSON; none: lines of stdin")
    ] = None,
    *,
    text: Annotated[bool, typer.Option("--text", help="the data is text, not JSON")] = False,
    tag: Annotated[str | None, typer.Option("--tag", help="of every job")] = None,
    as_json: AsJson = False,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """Add jobs: one for each DATA, or for each line of stdin.

    A queue that is absent is made; a topic that is a log is refused.
    """
    values = (
        parse_value(raw, where=where, text=text, whole=False)[0]
        for where, raw in given_values(data or [])
    )
    told: dict[str, object] = {"queue": queue, "count": 0}
    with connect(url, context) as client:
        while batch := [*islice(values, PUT_JOBS)]:
            records = [{"data": value, **({} if tag is None else {"tag": tag})} for value in batch]
            key = secrets.token_hex(16)  # with one the client may try again
            added = client.append(queue, records, idempotency_key=key, queue=True)
            told = {"first_seq": added.first_seq, **told, "last_seq": added.last_seq}
            told["count"] = int(str(told["count"])) + added.count
    print_one(told, as_json=as_json)


@queue_app.command("claim")
def claim_jobs(
    queue: QueueName,
    node: Node,
    *,
    max_jobs: Annotated[int, typer.Option("--max", "-n", min=1, help="how many jobs")] = 1,
    lease_ms: Annotated[
        int | None, typer.Option("--lease-ms", min=1, help="for how long; default: the queue's")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """Take jobs; they come back by themselves when the lease is over."""
    with connect(url, context) as client:
        jobs = client.claim(queue, node=node, max=max_jobs, lease_ms=lease_ms).jobs
    rows = [
        {
            **wire_record(job),
            "lease_id": job.lease_id,
            "deadline": job.deadline,
            "deliveries": job.deliveries,
        }
        for job in jobs
    ]
    print_rows(rows, JOB_COLUMNS, as_json=as_json)


@queue_app.command("ack")
def ack_jobs(
    queue: QueueName,
    seqs: Annotated[list[int], typer.Argument(metavar="SEQ...", help="of the jobs")],
    node: Node,
    *,
    lease_ids: Annotated[
        list[str] | None, typer.Option("--lease-id", help="one a seq, in the same order")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """Delete jobs that are done."""
    with connect(url, context) as client:
        acked = client.ack(queue, seqs, node=node, lease_ids=lease_ids or None)
    print_one(fields_of(acked), as_json=as_json)


@queue_app.command("redrive")
def redrive_jobs(
    dead: Annotated[
        str,
        typer.Argument(
            metavar="DEAD", help="the topic of dead letters", autocompletion=complete_topics
        ),
    ],
    *,
    to: Annotated[
        str | None, typer.Option("--to", metavar="QUEUE", help="default: where each came from")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="the oldest so many; default: all")
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """Put dead letters back into their queues, oldest first."""
    jobs_of: Counter[str] = Counter()
    try:
        with connect(url, context) as client:
            if dry_run:
                for queue in foresee(client, dead, to=to, count=count):
                    jobs_of[queue] += 1
            else:
                for moved in redrive(client, dead, to=to, count=count):
                    jobs_of.update(moved)
    finally:  # what was moved is told, also when one letter stopped the rest
        rows = [{"queue": queue, "jobs": n, "moved": not dry_run} for queue, n in jobs_of.items()]
        if rows:
            print_rows(rows, ("queue", "jobs", "moved"), as_json=as_json)
