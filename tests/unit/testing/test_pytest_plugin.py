"""The fixtures that a user's tests get, used as a user would: by a pytest of their own."""

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from tests.unit.testing.plugin_runs import run_inner

from topics.errors import ConfigError
from topics.testing.forked_server import ForkedServer, ServerTemplate


def test_pytest_finds_the_plugin_by_itself() -> None:
    (found,) = entry_points(group="pytest11", name="topics")
    assert found.value == "topics.pytest_plugin"


def test_a_server_is_there_for_a_test_and_gone_after_it(pytester: pytest.Pytester) -> None:
    run_inner(
        pytester,
        """
        import os, urllib.error, urllib.request

        seen = []

        def test_it_answers(topics_server):
            seen.append(topics_server)
            said = urllib.request.urlopen(topics_server.url + "/v0/health").read()
            assert b'"status":"ok"' in said

        def test_it_is_gone():
            try:
                urllib.request.urlopen(seen[0].url + "/v0/health")
            except urllib.error.URLError:
                return
            raise AssertionError("it still listens")
        """,
        passed=2,
    )


def test_what_was_acknowledged_outlives_a_kill(pytester: pytest.Pytester) -> None:
    run_inner(
        pytester,
        """
        def test_it(topics_server, post):
            post("/v0/topics/a", {"records": [{"data": 1}], "config": {"durability": "fsync"}})
            port = topics_server.port
            topics_server.kill9()
            assert not topics_server.is_running
            topics_server.restart()
            assert topics_server.port == port
            assert [r["data"] for r in post("/v0/topics/a/diff", {})["records"]] == [1]
        """,
        passed=1,
    )


def test_a_full_disk_refuses_writes_and_takes_them_again(pytester: pytest.Pytester) -> None:
    run_inner(
        pytester,
        """
        import urllib.error

        def test_it(topics_server, post):
            post("/v0/topics/a", {"records": [{"data": 1}]})
            with topics_server.disk_full():
                try:
                    post("/v0/topics/a", {"records": [{"data": 2}]})
                except urllib.error.HTTPError as error:
                    assert b"no space left" in error.read()
                else:
                    raise AssertionError("it was written")
                assert len(post("/v0/topics/a/diff", {})["records"]) == 1
            post("/v0/topics/a", {"records": [{"data": 3}]})
            assert [r["data"] for r in post("/v0/topics/a/diff", {})["records"]] == [1, 3]
        """,
        passed=1,
    )


def test_a_client_and_a_topic_of_its_own_come_with_the_server(pytester: pytest.Pytester) -> None:
    run_inner(
        pytester,
        """
        import pytest

        @pytest.mark.topics(keys="secret:rwda")
        def test_client(topics_client):
            topics_client.append("a", [{"data": 1}])
            assert topics_client.topics() == ["a"]

        @pytest.mark.parametrize("word", ["à b", "c"])
        def test_topic(topics_topic, topics_client, word):
            topics_topic.append(word)
            (item,) = [item for item in topics_topic.read() if hasattr(item, "data")]
            assert item.data == word
            assert topics_client.topics()[0].startswith("test_topic")
        """,
        passed=3,
    )


def test_keys_and_settings_come_from_a_mark(pytester: pytest.Pytester) -> None:
    run_inner(
        pytester,
        """
        import pytest, urllib.error, urllib.request

        @pytest.mark.topics(keys="secret", max_topics=1)
        def test_it(topics_server):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(topics_server.url + "/v0/topics")
            assert refused.value.code == 401
            assert "secret" not in topics_server.said
        """,
        passed=1,
    )


def test_a_setting_that_nobody_knows_is_named(pytester: pytest.Pytester) -> None:
    result = run_inner(
        pytester,
        """
        import pytest

        @pytest.mark.topics(max_topix=1)
        def test_it(topics_server):
            pass
        """,
        errors=1,
    )
    result.stdout.fnmatch_lines(["*max_topix*"])


@pytest.mark.parametrize(
    ("settings", "told"),
    [({"sesion_ttl_ms": 5}, "session_ttl_ms"), ({"session_ttl_ms": "x"}, "cannot be")],
)
def test_a_setting_that_nobody_knows_is_refused_by_the_nearest_name(
    topics_template: ServerTemplate, tmp_path: Path, settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        ForkedServer(topics_template, str(tmp_path / "data"), **settings)
