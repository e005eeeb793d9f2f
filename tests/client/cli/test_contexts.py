"""Named servers, and which token goes where."""

import stat
from pathlib import Path

import pytest
from tests.client.bad_server import reply, serving
from tests.client.cli.conftest import Run

from topics.cli import exit_codes
from topics.cli.contexts import Context, Contexts, contexts_path, load_contexts, save_contexts
from topics.errors import ConfigError

SECRET = "sk-very-secret"
EMPTY = b'{"topics":[]}'


def test_contexts_are_added_used_shown_and_forgotten(run: Run) -> None:
    assert run("context", "add", "home", "--url", "http://127.0.0.1:1").code == exit_codes.OK
    run("context", "add", "work", "--url", "https://x", "--token-env", "WORK_TOKEN")
    assert [line["context"] for line in run("context", "ls").lines] == ["home", "work"]
    assert run("context", "show").lines[0]["context"] == "home"
    run("context", "use", "work")
    assert run("context", "show").lines == [
        {"context": "work", "url": "https://x", "token": "$WORK_TOKEN", "current": True}
    ]
    run("context", "rm", "work")
    assert run("context", "show").code == exit_codes.USAGE
    assert run("context", "use", "work").code == exit_codes.USAGE


def test_the_file_is_for_its_owner_alone_and_holds_no_token(run: Run, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(SECRET)
    run("context", "add", "a", "--url", "http://127.0.0.1:1", "--token-file", str(token))
    assert stat.S_IMODE(contexts_path().stat().st_mode) == 0o600
    assert SECRET not in contexts_path().read_text()


def test_a_token_goes_to_its_own_server_only(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text(SECRET + "\n")
    monkeypatch.setenv("TOPICS_TOKEN", "another")
    with serving(lambda connection, _number: connection.sendall(reply(200, EMPTY))) as server:
        run("context", "add", "with", "--url", server.url, "--token-file", str(token))
        run("context", "add", "without", "--url", server.url)
        assert run("topic", "ls", "--context", "with").code == exit_codes.OK
        assert run("topic", "ls", "--context", "without").code == exit_codes.OK
        assert run("topic", "ls", "--url", server.url).code == exit_codes.OK
        monkeypatch.delenv("TOPICS_URL")
        assert run("topic", "ls").code == exit_codes.OK, "the current one"
        tokens = [
            [line for line in request.split(b"\r\n") if line.startswith(b"Authorization")]
            for request in server.requests
        ]
    own = [b"Authorization: Bearer " + SECRET.encode()]
    assert tokens == [own, [], [b"Authorization: Bearer another"], own]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--token-env", "NOBODY_SET_THIS"),
        ("--token-file", "/nobody/has/this"),
    ],
)
def test_a_token_that_is_not_there_is_told(run: Run, arguments: tuple[str, str]) -> None:
    run("context", "add", "a", "--url", "http://127.0.0.1:1", *arguments)
    outcome = run("topic", "ls", "--context", "a")
    assert outcome.code == exit_codes.USAGE
    assert arguments[1] in outcome.err


def test_a_file_that_makes_no_sense_is_told(run: Run) -> None:
    contexts_path().parent.mkdir(parents=True)
    contexts_path().write_text("contexts = 3")
    outcome = run("context", "ls")
    assert outcome.code == exit_codes.USAGE
    assert str(contexts_path()) in outcome.err


def test_names_and_urls_of_any_kind_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    contexts = Contexts(current="a.b-c", contexts={"a.b-c": Context(url='http://"\\\n\u2028é')})
    save_contexts(contexts)
    assert load_contexts() == contexts
    with pytest.raises(ConfigError):
        save_contexts(Contexts(contexts={"no name": Context(url="x")}))
    assert load_contexts() == contexts
