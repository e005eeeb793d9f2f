"""Every command that a guide shows for our side is run, in order, against a fresh server."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from topics.testing.server_process import ServerProcess

GUIDES = Path(__file__).parents[2] / "docs/guides"
PAGES = sorted(GUIDES.glob("from-[knrs]*.md"))
CURL = 'curl() { command curl --silent --show-error --fail-with-body --max-time 20 "$@"; echo; }\n'


def commands(page: Path) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def test_there_are_four_guides() -> None:
    assert [page.stem for page in PAGES] == [
        "from-kafka",
        "from-nats",
        "from-redis-streams",
        "from-sqs-celery",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_guide_are_answered(page: Path, tmp_path: Path) -> None:
    blocks = commands(page)
    assert blocks
    with ServerProcess(str(tmp_path / "data")) as server:
        for block in blocks:
            assert "localhost:4000" in block
            script = CURL + block.replace("localhost:4000", f"127.0.0.1:{server.port}")
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", script],
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            answers = [json.loads(line) for line in done.stdout.splitlines() if line]
            assert len(answers) == len(re.findall(r"^curl ", block, re.MULTILINE))


def test_user1_is_where_the_guide_says(tmp_path: Path) -> None:
    page = GUIDES / "from-kafka.md"
    with ServerProcess(str(tmp_path / "data")) as server:
        script = CURL + commands(page)[0].replace("localhost:4000", f"127.0.0.1:{server.port}")
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    written = json.loads(done.stdout.splitlines()[-1])
    assert written["placements"][0]["partition"] == 2
    assert "`user1` goes to partition 2 of 3" in page.read_text()
