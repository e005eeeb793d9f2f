"""`topics group`."""

import pytest
from tests.client.cli.conftest import Run, on_terminal
from tests.client.faces import fresh

from topics.cli import exit_codes
from topics.client import Topics
from topics.testing.server_process import ServerProcess


def test_a_group_is_looked_at_moved_and_removed(run: Run, api: Topics) -> None:
    topic, group = fresh(), fresh("g")
    api.append(topic, [{"data": n} for n in range(5)])
    api.commit(group, {topic: {0: 5}})
    (listed,) = [line for line in run("group", "ls").lines if line["group"] == group]
    assert (listed["state"], listed["lag_total"], listed["members"]) == ("empty", 0, 0)
    (would,) = run("group", "seek", group, "seq=2", "--dry-run").lines
    assert (would["from"], would["to"], would["dry_run"]) == (5, 2, True)
    assert run("group", "show", group).lines[0]["lag_total"] == 0
    run("group", "seek", group, "earliest", "--topic", topic)
    assert run("group", "show", group).lines[0]["lag_total"] == 5
    assert run("group", "rm", group, "--dry-run").lines[0]["removed"] is False
    assert run("group", "rm", group).lines[0]["removed"] is True
    assert run("group", "rm", group).code == exit_codes.NOT_THERE


@pytest.mark.parametrize("place", ["middle", "seq=", "seq=-1", "seq=x", "time=3"])
def test_a_place_that_is_none_is_refused(run: Run, place: str) -> None:
    outcome = run("group", "seek", "g", place)
    assert outcome.code == exit_codes.ERROR
    assert "earliest" in outcome.err


def test_a_terminal_shows_partitions_as_a_table(
    environment: dict[str, str], server: ServerProcess, api: Topics
) -> None:
    topic, group = fresh(), fresh("g")
    api.append(topic, [{"data": 1}])
    api.commit(group, {topic: {0: 0}})
    code, shown = on_terminal({**environment, "TOPICS_URL": server.url}, "group", "show", group)
    assert code == exit_codes.OK
    assert "committed" in shown
    assert topic in shown
