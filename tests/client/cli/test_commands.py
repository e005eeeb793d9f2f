"""Every command that speaks to a server: what it does, prints and exits with."""

from collections.abc import Callable
from itertools import islice

import pytest
from tests.client.cli.conftest import Run
from tests.client.faces import fresh

from topics.cli import exit_codes
from topics.client import Topics
from topics.model.diff import Record


def test_a_topic_from_its_making_to_its_end(run: Run, api: Topics) -> None:
    name = fresh("cli")
    (made,) = run("topic", "create", name, "cap_records=5", "durability=fsync").lines
    assert made["topic"] == name
    assert api.state(name).config.cap_records == 5
    (listed,) = run("topic", "ls", name).lines
    assert (listed["topic"], listed["durable"]) == (name, True)
    assert (listed["type"], listed["durability"]) == ("log", "fsync")
    (shown,) = run("topic", "show", name).lines
    assert shown["head_seq"] == 0
    assert run("topic", "rm", name).lines[0]["removed"] is True
    gone = run("topic", "show", name)
    assert gone.code == exit_codes.NOT_THERE
    assert gone.err.startswith(f"topics: topic '{name}' does not exist")
    assert run("topic", "rm", name).code == exit_codes.NOT_THERE


def test_a_dry_run_changes_nothing(run: Run, api: Topics) -> None:
    name = fresh("cli")
    api.append(name, [{"data": 1}])
    api.put_router(f"{name}->x", source=name, dest=f"{name}-x")
    before = api.state(name).config
    change = {"field": "ttl_ms", "from": 0, "to": 60_000}
    assert run("topic", "set", name, "ttl_ms=60000", "--dry-run").lines == [change]
    assert run("topic", "rm", name, "--dry-run").lines[0]["removed"] is False
    assert run("router", "rm", f"{name}->x", "--dry-run").lines[0]["removed"] is False
    assert api.state(name).config == before
    assert api.state(name).count == 1
    assert run("topic", "set", name, "ttl_ms=60000").lines == [change]
    assert api.state(name).config.ttl_ms == 60_000
    assert run("router", "rm", f"{name}->x").lines[0]["removed"] is True
    assert run("router", "show", f"{name}->x").code == exit_codes.NOT_THERE


def test_set_does_not_create_and_refuses_unknown_fields(run: Run, api: Topics) -> None:
    name = fresh("cli")
    assert run("topic", "set", name, "ttl_ms=1").code == exit_codes.NOT_THERE
    api.create(name)
    wrong = run("topic", "set", name, "ttl_m=1", "--dry-run")
    assert wrong.code == exit_codes.ERROR
    assert "ttl_ms" in wrong.err
    assert run("topic", "set", name, "ttl_ms").code == exit_codes.ERROR


def test_what_is_put_is_what_peek_and_tail_show(run: Run, api: Topics) -> None:
    name = fresh("cli")
    assert run("put", name, '{"a": 1.50}', "2", "--tag", "t").lines == [
        {
            "topic": name,
            "count": 2,
            "first": {"topic": name, "seq": 1},
            "last": {"topic": name, "seq": 2},
        }
    ]
    run("put", name, "--text", "plain")
    assert [record.data for record in api.diff(name).records] == [{"a": 1.5}, 2, "plain"]
    peeked = run("topic", "peek", name, "-n", "2")
    assert [line["data"] for line in peeked.lines] == [2, "plain"]
    tailed = run("tail", name, "--from-seq", "0", "--until-caught-up", "--match", "t")
    assert [(line["$seq"], line["$tag"]) for line in tailed.lines] == [(1, "t"), (2, "t")]
    assert '"data":{"a": 1.50}' in tailed.out, "the very bytes that were sent"
    assert len(run("tail", name, "--from-seq", "0", "-n", "1").lines) == 1


def test_partitions_are_tailed_and_peeked_as_one(run: Run, api: Topics) -> None:
    name, copy = fresh("cli"), fresh("cli")
    api.create(name, partitions=3)
    for n in range(12):
        api.append(name, [{"data": n, "key": f"user{n % 4}"}])
    tailed = run("tail", name, "--from-seq", "0", "--until-caught-up")
    order = {record.data: (record.ts, name, record.seq) for name, record in _each(api, name)}
    data = [line["data"] for line in tailed.lines]
    assert data == sorted(range(12), key=order.__getitem__)
    assert [line["data"] for line in run("topic", "peek", name, "-n", "5").lines] == data[7:]
    assert len(run("topic", "peek", name, "-n", "5", "--from-seq", "0").lines) == 5
    for line in tailed.out.splitlines():
        run("put", copy, "--records", line)
    assert [record.data for record in api.diff(copy).records] == data


def _each(api: Topics, parent: str) -> list[tuple[str, Record]]:
    names = [part.topic for part in api.state(parent).partitions or ()]
    return [(name, record) for name in names for record in api.diff(name).records]


def test_a_pattern_tails_what_fits(run: Run, api: Topics) -> None:
    word = fresh("cli")
    for name in ("a", "b"):
        api.append(f"{word}.{name}", [{"data": name}])
    tailed = run("tail", f"{word}.*", "--from-seq", "0", "--until-caught-up")
    found = sorted((str(line["topic"]), line["$seq"], line["data"]) for line in tailed.lines)
    assert found == [(f"{word}.a", 1, "a"), (f"{word}.b", 1, "b")]
    refused = run("tail", f"{word}.*", "--from-seq", "3")
    assert refused.code == exit_codes.ERROR
    assert "go with one topic" in refused.err


def test_a_topic_that_is_not_there_has_no_end_to_catch_up_with(run: Run) -> None:
    for options in ((), ("--from-seq", "0")):
        outcome = run("tail", fresh("nobody"), "--until-caught-up", *options)
        assert outcome.code == exit_codes.NOT_THERE


def test_a_tail_may_begin_and_end_at_a_time(run: Run, api: Topics) -> None:
    name = fresh("cli")
    api.append(name, [{"data": 1}])
    assert len(run("tail", name, "--since", "2020-01-01", "--until-caught-up").lines) == 1
    assert run("tail", name, "--until", "2020-01-01T00:00:00").lines == []
    late = run("tail", name, "--since", "2999-12-31 00:00:00", "--until-caught-up")
    assert late.lines == []


def test_loss_is_a_line_in_a_pipe(run: Run, api: Topics) -> None:
    name = fresh("cli")
    api.create(name, cap_records=1)
    api.append(name, [{"data": n} for n in range(3)])
    lost, last = run("tail", name, "--from-seq", "0", "--until-caught-up").lines
    assert isinstance(lost["tombstone"], dict)
    assert lost["tombstone"]["gap_to"] == 2
    assert last["data"] == 2


def test_data_that_is_no_json_is_refused(run: Run, api: Topics) -> None:
    name = fresh("cli")
    outcome = run("put", name, "1", "{")
    assert outcome.code == exit_codes.ERROR
    assert "argument 2 is not JSON" in outcome.err
    assert [record.data for record in api.diff(name).records] == [1]


def test_partitions_are_made_grown_and_written_to(run: Run, api: Topics) -> None:
    name = fresh("parts")
    run("topic", "create", name, "--partitions", "3")
    assert len(api.state(name).partitions or []) == 3
    change = {"field": "partitions", "from": 3, "to": 5}
    assert run("topic", "set", name, "partitions=5", "--dry-run").lines == [change]
    assert len(api.state(name).partitions or []) == 3
    assert run("topic", "set", name, "partitions=5").lines == [change]
    (wrote,) = run("put", name, "1", "--key", "user1").lines
    assert wrote["first"] == wrote["last"]
    parent = next(line for line in run("topic", "ls", name).lines if line["topic"] == name)
    assert parent["partitions"] == 5


def test_routers_are_put_and_listed(run: Run) -> None:
    source, dest = fresh("src"), fresh("dst")
    (made,) = run("router", "put", source, dest, 'filter=["tag","Glob","x*"]').lines
    assert made["router"] == f"{source}->{dest}"
    assert f"{source}->{dest}" in [line["router"] for line in run("router", "ls").lines]
    assert run("router", "show", f"{source}->{dest}").lines[0]["filter"] == ["tag", "Glob", "x*"]


def test_jobs_are_claimed_and_acked(run: Run, api: Topics) -> None:
    queue = fresh("q")
    api.create(queue, type="queue")
    api.append(queue, [{"data": "a"}, {"data": "b"}])
    one, two = run("queue", "claim", queue, "--node", "w", "--max", "5").lines
    assert (one["data"], two["data"]) == ("a", "b")
    acked = run("queue", "ack", queue, "1", "--node", "w", "--lease-id", str(one["lease_id"]))
    assert acked.lines[0]["acked"] == 1
    (listed,) = run("queue", "ls", queue).lines
    assert (listed["ready"], listed["in_flight"]) == (0, 1)


def test_jobs_are_put_into_a_queue_that_is_made_for_them(run: Run, api: Topics) -> None:
    queue, plain = fresh("q"), fresh("t")
    put = run("queue", "put", queue, '{"to":"a"}', '"b"', "--tag", "t")
    assert put.lines == [{"queue": queue, "count": 2, "first_seq": 1, "last_seq": 2}]
    jobs = api.claim(queue, node="w", max=5).jobs
    assert [(job.data, job.tag) for job in jobs] == [({"to": "a"}, "t"), ("b", "t")]
    api.append(plain, [{"data": 1}])
    refused = run("queue", "put", plain, "1")
    assert refused.code != 0
    assert "is a log" in refused.err
    assert api.state(plain).head_seq == 1


def test_dead_letters_go_back_to_where_they_came_from(run: Run, api: Topics) -> None:
    queue, dead = fresh("q"), fresh("dead")
    api.create(dead)
    api.create(queue, type="queue", max_deliveries=1, dead_letter=dead)
    api.append(queue, [{"data": n, "tag": "t", "meta": {"k": n}} for n in range(3)])
    for job in api.claim(queue, node="w", max=3).jobs:
        api.nack(queue, [job.seq], node="w")
    assert api.claim(queue, node="w", max=3).count == 0
    buried = (item for item in api.topic(dead).tail(from_seq=0) if isinstance(item, Record))
    assert [letter.data for letter in islice(buried, 3)] == [0, 1, 2]
    would = run("queue", "redrive", dead, "--dry-run").lines
    assert would == [{"queue": queue, "jobs": 3, "moved": False}]
    assert run("queue", "redrive", dead, "-n", "1").lines[0]["jobs"] == 1
    assert run("queue", "redrive", dead).lines == [{"queue": queue, "jobs": 2, "moved": True}]
    assert api.state(dead).count == 0
    again = api.claim(queue, node="w", max=5).jobs
    assert [(job.data, job.tag, job.meta) for job in again] == [
        (n, "t", {"k": n}) for n in range(3)
    ]


def test_what_is_no_dead_letter_needs_a_queue(run: Run, api: Topics) -> None:
    name, queue = fresh("plain"), fresh("q")
    api.append(name, [{"data": 1}])
    api.create(queue, type="queue")
    assert run("queue", "redrive", name).code == exit_codes.ERROR
    assert run("queue", "redrive", queue).code == exit_codes.ERROR
    assert run("queue", "redrive", name, "--to", queue).lines[0]["jobs"] == 1


def test_a_server_that_is_not_there_has_its_exit_code(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topics.cli.connect.RETRY_FOR_S", 0.1)
    outcome = run("topic", "ls", "--url", "http://127.0.0.1:9")
    assert outcome.code == exit_codes.LATER
    assert "http://127.0.0.1:9 cannot be reached" in outcome.err
    assert len(outcome.err.splitlines()) == 1


def die(api: Topics, queue: str, dead: str, jobs: int) -> None:
    """Let so many jobs of a new queue become dead letters."""
    seen = api.state(dead).head_seq
    wanted = seen + jobs
    api.create(queue, type="queue", max_deliveries=1, dead_letter=dead)
    api.append(queue, [{"data": 1}] * jobs)
    api.nack(queue, [job.seq for job in api.claim(queue, node="w", max=jobs).jobs], node="w")
    assert api.claim(queue, node="w").jobs == []
    while seen < wanted:
        page = api.diff(dead, from_seq=seen, wait_ms=10_000)
        assert page.count
        seen = page.next_from_seq


@pytest.mark.parametrize(
    ("spoil", "code", "why"),
    [
        (lambda api, queue: api.drop(queue), exit_codes.NOT_THERE, "does not exist"),
        (
            lambda api, queue: api.create(queue, dead_letter="elsewhere"),
            exit_codes.ERROR,
            "as its dead_letter",
        ),
        (
            lambda api, queue: (api.drop(queue), api.create(queue)),
            exit_codes.ERROR,
            "is a log",
        ),
    ],
    ids=["gone", "names another", "is a log"],
)
def test_a_dry_run_stops_where_a_redrive_would(
    run: Run, api: Topics, spoil: Callable[[Topics, str], object], code: int, why: str
) -> None:
    queue, other, dead = fresh("q"), fresh("other"), fresh("dead")
    api.create(dead)
    for name, jobs in ((queue, 2), (other, 1), (queue, 1)):
        die(api, name, dead, jobs)
    spoil(api, other)
    would, did = run("queue", "redrive", dead, "--dry-run"), run("queue", "redrive", dead)
    for outcome, moved in ((would, False), (did, True)):
        assert outcome.lines == [{"queue": queue, "jobs": 2, "moved": moved}]
        assert outcome.code == code
        assert why in outcome.err
        assert other in outcome.err


def test_a_dry_run_knows_the_queues_of_partitioned_dead_letters(run: Run, api: Topics) -> None:
    queue, stranger, dead = fresh("q"), fresh("other"), fresh("dead")
    api.create(dead, partitions=2)
    for name in (queue, stranger):
        api.create(name, type="queue", max_deliveries=1, dead_letter=dead)
        api.append(name, [{"data": 1, "tag": "a"}])
        api.nack(name, [job.seq for job in api.claim(name, node="w").jobs], node="w")
        assert api.claim(name, node="w").jobs == []
    for name in (dead, f"{dead}-0"):
        assert len(run("queue", "redrive", name, "--dry-run").lines) == 2
    api.create(stranger, dead_letter=None)
    for name in (dead, f"{dead}-0"):
        would = run("queue", "redrive", name, "--dry-run")
        assert would.lines == [{"queue": queue, "jobs": 1, "moved": False}]
        assert f"does not have {dead!r} as its dead_letter: name a queue by --to" in would.err
    assert run("queue", "redrive", dead).lines == [{"queue": queue, "jobs": 1, "moved": True}]
    assert run("queue", "redrive", dead, "--to", queue).lines[0]["jobs"] == 1


def test_a_redrive_tells_what_it_moved_before_it_was_stopped(run: Run, api: Topics) -> None:
    queue, gone, dead = fresh("q"), fresh("gone"), fresh("dead")
    api.create(dead)
    for name, jobs in ((queue, 2), (gone, 1)):
        die(api, name, dead, jobs)
    api.drop(gone)
    outcome = run("queue", "redrive", dead)
    assert outcome.lines == [{"queue": queue, "jobs": 2, "moved": True}]
    assert outcome.code == exit_codes.NOT_THERE
    assert gone in outcome.err
