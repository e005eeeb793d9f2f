"""The same command in a pipe and on a terminal."""

import os
import signal
import subprocess
import sys

from tests.client.cli.conftest import on_terminal, piped
from tests.client.faces import DEADLINE_S, fresh

from topics.cli import exit_codes
from topics.client import Topics
from topics.testing.server_process import ServerProcess

EVIL = "red\x1b[31m\x07bell\u202eback"


def test_a_pipe_carries_records_from_topic_to_topic(
    environment: dict[str, str], server: ServerProcess, api: Topics
) -> None:
    source, dest = fresh("pipe"), fresh("pipe")
    api.append(source, [{"data": n, "tag": f"t{n}", "meta": {"k": n}} for n in range(300)])
    environment["TOPICS_URL"] = server.url
    read = piped(environment, "tail", source, "--from-seq", "0", "--until-caught-up")
    assert len(read.lines) == 300
    wrote = piped(environment, "put", dest, "--records", stdin=read.out)
    assert wrote.lines[0]["count"] == 300
    assert wrote.lines[0]["last"] == {"topic": dest, "seq": 300}
    for ours, theirs in zip(
        api.diff(source, limit=1000).records, api.diff(dest, limit=1000).records, strict=True
    ):
        assert (ours.data, ours.tag, ours.meta) == (theirs.data, theirs.tag, theirs.meta)


def test_lines_before_a_bad_one_are_written(
    environment: dict[str, str], server: ServerProcess, api: Topics
) -> None:
    name = fresh("pipe")
    environment["TOPICS_URL"] = server.url
    outcome = piped(environment, "put", name, stdin='1\n\n"two"\n{\n4\n')
    assert outcome.code == exit_codes.ERROR
    assert "line 4 of stdin is not JSON" in outcome.err
    assert [record.data for record in api.diff(name).records] == [1, "two"]


def test_a_terminal_gets_a_table_and_a_pipe_lines(
    environment: dict[str, str], server: ServerProcess, api: Topics
) -> None:
    name = fresh("tty")
    api.append(name, [{"data": 1}])
    environment["TOPICS_URL"] = server.url
    code, shown = on_terminal(environment, "topic", "ls", name)
    assert code == exit_codes.OK
    assert "head_seq" in shown
    assert "\x1b[1m" in shown, "the heads of the columns are bold"
    _, plain = on_terminal({**environment, "NO_COLOR": "1"}, "topic", "ls", name)
    assert "\x1b[3" not in plain
    _, as_json = on_terminal(environment, "topic", "ls", name, "--json")
    assert as_json.startswith('{"topic":')


def test_put_says_on_a_terminal_that_it_waits_for_lines(
    environment: dict[str, str], server: ServerProcess, api: Topics
) -> None:
    name = fresh("tty")
    environment["TOPICS_URL"] = server.url
    code, shown = on_terminal(environment, "put", name, typed=b'{"a": 1}\n2\n\x04')
    assert code == exit_codes.OK
    assert "-- waiting for records, one a line; Ctrl-D ends them" in shown
    assert [record.data for record in api.diff(name).records] == [{"a": 1}, 2]
    assert "waiting" not in on_terminal(environment, "put", name, "3")[1]
    assert "waiting" not in piped(environment, "put", name, stdin="4").err


def test_no_record_can_steer_a_terminal(
    environment: dict[str, str], server: ServerProcess, api: Topics
) -> None:
    name = fresh("tty")
    api.append(name, [{"data": EVIL, "tag": "\x1b]0;title\x07"}])
    environment["TOPICS_URL"] = server.url
    _, shown = on_terminal(environment, "topic", "peek", name)
    assert "red?[31m?bell?back" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_a_tail_waits_for_a_topic_that_is_not_there_yet_and_says_so(
    environment: dict[str, str], server: ServerProcess, api: Topics
) -> None:
    word = fresh("later")
    for asked, name, said in (
        (word, word, f"the topic {word} is not there yet: waiting for it"),
        (f"{word}.*", f"{word}.a", f"-- no topic fits {word}.* yet: waiting for one"),
    ):
        with subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "topics", "tail", asked, "-n", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment, "TOPICS_URL": server.url},
        ) as child:
            try:
                assert child.stderr is not None
                assert child.stderr.readline() == f"{said}\n"
                api.append(name, [{"data": 7}])
                out, err = child.communicate(timeout=DEADLINE_S)
            finally:
                child.kill()
        assert '"data":7' in out
        assert (child.returncode, err) == (exit_codes.OK, "")


def test_a_tail_waits_for_what_comes_and_ends_with_ctrl_c(
    environment: dict[str, str], server: ServerProcess, api: Topics
) -> None:
    name = fresh("pipe")
    api.create(name)
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "topics", "tail", name, "--from-seq", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment, "TOPICS_URL": server.url},
    ) as child:
        try:
            assert child.stdout is not None
            for n in range(3):
                api.append(name, [{"data": n}])
                assert f'"data":{n}' in child.stdout.readline()
            os.kill(child.pid, signal.SIGINT)
            _, said = child.communicate(timeout=DEADLINE_S)
        finally:
            child.kill()
    assert (child.returncode, said) == (exit_codes.OK, "")
