"""What a shell completes: names of the server that a command would speak to."""

import socket
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from tests.client.bad_server import serving
from tests.client.faces import DEADLINE_S, fresh

from topics.cli.completion import PATIENCE_S, complete_topics
from topics.client import Topics
from topics.clock import SystemClock
from topics.testing.server_process import ServerProcess

PROGRAM = "import sys; sys.argv = ['topics']; from topics.cli.main import main; main()"
SLACK_S = 2.0
"""For a busy machine; without a bound it would be the client's 30 seconds."""


def completed(environment: dict[str, str], words: str) -> tuple[list[str], str]:
    """Ask as bash does; return what it would offer, and what was said besides."""
    asked = {
        "_TOPICS_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env={**environment, **asked},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    return done.stdout.split(), done.stderr


def test_names_of_topics_groups_and_routers_are_completed(
    environment: dict[str, str], server: ServerProcess, client: Topics
) -> None:
    word = fresh("comp")
    client.append(f"{word}-a", [{"data": 1}])
    client.put_router(f"{word}-r", source=f"{word}-a", dest=f"{word}-b")
    client.commit(f"{word}-g", {f"{word}-a": {0: 0}})
    environment["TOPICS_URL"] = server.url
    both = [f"{word}-a", f"{word}-b"]
    assert completed(environment, f"topics topic show {word}") == (both, "")
    assert completed(environment, f"topics export {word}-a {word}") == (both, "")
    assert completed(environment, f"topics group show {word}") == ([f"{word}-g"], "")
    assert completed(environment, f"topics router rm {word}") == ([f"{word}-r"], "")


def test_a_server_that_is_away_completes_nothing_and_says_nothing(
    environment: dict[str, str],
) -> None:
    environment["TOPICS_URL"] = "http://127.0.0.1:9"
    assert completed(environment, "topics topic show x") == ([], "")
    environment["TOPICS_URL"] = "no url at all"
    assert completed(environment, "topics topic show x") == ([], "")


def test_a_server_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOPICS_TOKEN", raising=False)
    over = threading.Event()
    clock = SystemClock()

    def say_nothing(_connection: socket.socket, _number: int) -> None:
        over.wait(DEADLINE_S)

    with serving(say_nothing) as silent:
        context: Any = SimpleNamespace(params={"url": silent.url, "context": None})
        start_s = clock.monotonic_s()
        assert complete_topics(context, "x") == []
        spent_s = clock.monotonic_s() - start_s
        over.set()
    assert spent_s < PATIENCE_S + SLACK_S
