"""Fixtures for tests of programs that use `topics`; pytest finds them by itself.

- `topics_server`: a real server on a free port and a fresh directory, gone after the test. It can
  be killed (`kill9`), started again (`restart`) and run out of disk (`disk_full`).
- `topics_client`: a client of it.
- `topics_topic`: a topic of it with a name of the test's own.

`@pytest.mark.topics(keys="secret:rw", session_ttl_ms=500)` gives the server keys and settings.
Reference: docs/reference/pytest.md.
"""

import re
from collections.abc import Iterator
from pathlib import Path  # noqa: TID251 - what pytest gives a test
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from topics.client import Topics
    from topics.handles import TopicHandle
    from topics.testing.forked_server import ForkedServer, ServerTemplate

MARK = "topics"
TOPIC_CHARACTERS = 60


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{MARK}(keys=…, **settings): keys and settings of `topics_server`"
    )


@pytest.fixture(scope="session")
def topics_template() -> "Iterator[ServerTemplate]":
    """Start the process that servers are forked from, once."""
    from topics.testing.forked_server import ServerTemplate  # noqa: PLC0415 - when it is needed

    template = ServerTemplate()
    yield template
    template.close()


@pytest.fixture
def topics_server(
    topics_template: "ServerTemplate", tmp_path: Path, request: pytest.FixtureRequest
) -> "Iterator[ForkedServer]":
    """Start a real server for this test."""
    from topics.testing.forked_server import ForkedServer  # noqa: PLC0415 - when it is needed

    mark = request.node.get_closest_marker(MARK)
    settings = dict(mark.kwargs) if mark else {}
    with ForkedServer(topics_template, str(tmp_path / "topics-data"), **settings) as server:
        yield server


@pytest.fixture
def topics_client(topics_server: "ForkedServer") -> "Iterator[Topics]":
    """Make a client of the server, with its first key."""
    from topics.client import Topics  # noqa: PLC0415 - an extra

    token = topics_server.keys.partition(",")[0].partition(":")[0] or None
    with Topics(topics_server.url, token=token) as client:
        yield client


@pytest.fixture
def topics_topic(topics_client: "Topics", request: pytest.FixtureRequest) -> "TopicHandle[Any]":
    """Make a topic that is named after the test."""
    name = topic_name(request.node.name)
    topics_client.create(name)
    return topics_client.topic(name)


def topic_name(test_name: str) -> str:
    """Make a topic's name of a test's."""
    return re.sub(r"[^a-zA-Z0-9_.-]+", "-", test_name).strip("-.")[:TOPIC_CHARACTERS] or "topic"
