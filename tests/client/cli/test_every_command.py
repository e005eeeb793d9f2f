"""Every command as a process of its own, once in a pipe and once on a terminal.

Data, tags, names of workers and members, messages: all of them try to steer the terminal.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.client.cli.conftest import Outcome, on_terminal, piped
from tests.unit.cli.test_command_tree import COMMANDS

import topics
from topics.cli import exit_codes
from topics.client import Topics
from topics.testing.server_process import ServerProcess

EVIL = "\x1b[31mred\x07\x9b2J\u202e"
CASES: dict[str, str] = {
    "version": "--json",
    "config show": "--json",
    "verify": "{dir} --json",
    "inspect": "{dir} --json",
    "repair": "{dir} --dry-run --json",
    "import-broker": "{old} --dry-run --json --data-dir {new}",
    "put": "{n}written --text x --tag y",
    "tail": "evil --from-seq 0 --until-caught-up",
    "export": "evil",
    "import": "{file} {n}imported",
    "top": "--once --interval 0.1",
    "bench": "--seconds 0.1 --threads 1",
    "backup": "{n}copy",
    "topic ls": "",
    "topic show": "evil",
    "topic create": "{n}made ttl_ms=5000",
    "topic set": "evil ttl_ms=90000000 --dry-run",
    "topic rm": "evil --dry-run",
    "topic peek": "evil",
    "router ls": "",
    "router show": "evil->copy",
    "router put": "evil {n}copy",
    "router rm": "evil->copy --dry-run",
    "queue ls": "",
    "queue put": "{n}jobs 1 --tag t",
    "queue claim": "jobs --node w --max 2",
    "queue ack": "jobs 1 --node nobody",
    "queue redrive": "dead --dry-run",
    "group ls": "",
    "group show": "readers",
    "group seek": "idle earliest --dry-run",
    "group rm": "idle --dry-run",
    "pipeline plan": "{plan}",
    "pipeline compact-cold": "",
    "context ls": "",
    "context show": "home",
    "context add": "{n}other --url http://127.0.0.1:1",
    "context use": "home",
    "context rm": "home --dry-run",
}
ELSEWHERE = {"serve", "up", "demo"} | {name for name in COMMANDS if name.startswith("pipeline ")}
"""They run until they are stopped, or need Java: each has tests of its own."""
DOCUMENTS = {"config show", "verify", "inspect", "repair", "import-broker"}
"""With --json they print one document."""
COLOUR = re.compile(r"\x1b\[[0-9;]*(3[0-9]|4[0-9]|9[0-7])m")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("server")
    settings = {"TOPICS_BACKUP_DIR": str(directory / "backups")}
    with ServerProcess(str(directory / "data"), settings=settings) as process:
        yield process


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make files for the commands that need some."""
    folder = tmp_path_factory.mktemp("files")
    with topics.open(str(folder / "dir")) as log:
        log.append("a", [{"data": EVIL, "tag": EVIL}])
    (folder / "old").mkdir()
    (folder / "old" / "orders-0.log").write_bytes(b"0:created\n")
    (folder / "plan").write_text('lake = "/srv/lake"\n[jobs.lake]\nkind = "lake"\n')
    (folder / "file").write_bytes(msgspec.json.encode({"data": EVIL, "$tag": EVIL}))
    config = folder / "config" / "topics"
    config.mkdir(parents=True)
    url = msgspec.json.encode(f"http://127.0.0.1:1/{EVIL}").decode()
    (config / "contexts.toml").write_text(f'current = "home"\n[contexts."home"]\nurl = {url}\n')
    return folder


@pytest.fixture(scope="module", autouse=True)
def hostile(server: ServerProcess) -> Iterator[None]:
    """Fill a server with what no terminal should ever see."""
    with Topics(server.url) as api:
        record = {"data": EVIL, "tag": EVIL, "node": EVIL, "meta": {EVIL: EVIL}}
        api.append("evil", [record] * 3)
        api.put_router("evil->copy", source="evil", dest="copy", filter=EVIL)
        api.create("jobs", type="queue")
        api.append("jobs", [record] * 9)
        api.create("dead")
        api.create("dying", type="queue", max_deliveries=1, dead_letter="dead")
        api.append("dying", [record])
        api.nack("dying", [job.seq for job in api.claim("dying", node="w").jobs], node="w")
        assert api.claim("dying", node="w").jobs == []
        assert api.diff("dead", wait_ms=10_000).count == 1
        api.join("readers", member=EVIL, topics=["evil"], session_ms=300_000)
        api.commit("idle", {"evil": {0: 1}})
        yield


def arguments(name: str, folder: Path, unique: str) -> list[str]:
    places = {part: str(folder / part) for part in ("dir", "old", "new", "file", "plan")}
    return [*name.split(), *CASES[name].format(n=unique, **places).split()]


@pytest.fixture
def home(environment: dict[str, str], server: ServerProcess, folder: Path) -> dict[str, str]:
    where = {"TOPICS_URL": server.url, "XDG_CONFIG_HOME": str(folder / "config")}
    return {**environment, **where}


def test_no_command_is_left_out() -> None:
    told = CASES.keys() | ELSEWHERE
    assert sorted(COMMANDS.keys() - told) == []


@pytest.mark.parametrize("name", CASES)
def test_a_pipe_gets_json_alone(name: str, home: dict[str, str], folder: Path) -> None:
    outcome: Outcome = piped(home, *arguments(name, folder, "p-"))
    assert outcome.code == exit_codes.OK, outcome.err
    assert "\x1b" not in outcome.out
    if name in DOCUMENTS:
        assert msgspec.json.decode(outcome.out)
    elif name not in ("context add", "context use"):
        assert outcome.lines


@pytest.mark.parametrize("name", CASES)
def test_a_terminal_is_not_steered(name: str, home: dict[str, str], folder: Path) -> None:
    words = [word for word in arguments(name, folder, "t-") if word != "--json"]
    code, shown = on_terminal({**home, "NO_COLOR": "1"}, *words)
    assert code == exit_codes.OK, shown
    for part in ("\x1b[31mred", "\x07", "\x9b", "\u202e"):
        assert part not in shown
    assert not COLOUR.search(shown), "NO_COLOR"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("topic show nobody", exit_codes.NOT_THERE),
        ("group show nobody", exit_codes.NOT_THERE),
        ("router show nobody", exit_codes.NOT_THERE),
        ("export nobody", exit_codes.NOT_THERE),
        ("queue claim evil --node w", exit_codes.ERROR),
        ("topic show --no-such-flag", exit_codes.USAGE),
        ("context show nobody", exit_codes.USAGE),
        (f"topic show {EVIL}", exit_codes.ERROR),
        (f"topic create x {EVIL}=1", exit_codes.ERROR),
        (f"context show {EVIL}", exit_codes.USAGE),
    ],
)
def test_an_error_is_one_clean_line_with_its_code(
    words: str, code: int, home: dict[str, str]
) -> None:
    in_pipe = piped(home, *words.split())
    assert (in_pipe.code, in_pipe.out) == (code, "")
    shown_code, shown = on_terminal({**home, "NO_COLOR": "1"}, *words.split())
    assert shown_code == code
    assert "\x1b[31mred" not in shown
    assert "\x07" not in shown
    if "--no-such-flag" not in words:
        assert in_pipe.err.startswith("topics: ")
        assert len(in_pipe.err.splitlines()) == 1
