"""The lines of docs/operating/cluster.md, run as they stand there, but for names of places."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.standalone import ROOT
from tests.unit.docs.pages import DOCS, code_blocks

from topics.testing.server_process import ServerProcess

PAGE = DOCS / "operating/cluster.md"
DEADLINE_S = 600
KEY = "cluster-key-0123456789"
MASTER, SERVER, KEY_FILE = "spark://10.0.0.1:7077", "http://10.0.0.5:4000", "/etc/topics/key"


@contextmanager
def server_with_key(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Start a server with a key; yields its URL, and where the page's places are."""
    key = folder / "key"
    key.touch(mode=0o600)
    key.write_text(KEY)
    with ServerProcess(str(folder / "data"), keys=KEY) as server:
        yield server.url, {SERVER: server.url, KEY_FILE: str(key)}


def block(language: str, word: str) -> str:
    """Return the one block of the page in which a word stands."""
    (found,) = (block for block in code_blocks(PAGE, language) if word in block)
    return found


def here(text: str, places: Mapping[str, str]) -> str:
    """Put places of this machine for those of the page; each must be there."""
    for name, place in places.items():
        assert name in text, f"{name} is not on the page"
        text = text.replace(name, place)
    return text


def run_lines(lines: str, folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Run lines as somebody would who has the package installed; return the code and what is said.

    What Spark says is left in the file `said`.
    """
    bin_folder = ROOT / ".venv/bin"
    with (folder / "said").open("ab") as said:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", lines],
            cwd=folder,
            env={**environment, "PATH": f"{bin_folder}:{environment['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    return done.returncode, done.stdout


def last_words(folder: Path) -> str:
    return (folder / "said").read_text(errors="replace")[-3_000:]
