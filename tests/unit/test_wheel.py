"""`make dist`, and a server from its wheel in an environment that has nothing else of ours.

One test, so that what takes long is built once, by one of those who share the work.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

import topics

ROOT = Path(__file__).parents[2]
UV = ROOT / ".venv/bin/uv"
ENVIRONMENT = {
    name: text
    for name, text in os.environ.items()
    if not name.startswith(("TOPICS_", "PYTHON", "MAKE", "MFLAGS"))
}
READY = re.compile(r'"event":"ready","url":"([^"]+)"')
DEPENDENCIES = Path(msgspec.__file__).parents[1]


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


def test_make_dist_builds_what_can_be_installed_and_served_from(tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    run("make", "--old-file", ".venv/.installed", "dist", f"DIST={dist}")
    source, wheel = sorted(dist.glob("topics_log-*"), key=lambda file: len(file.name))
    check_names(source, wheel)
    environment = install(wheel, tmp_path / "environment")
    check_what_runs(environment, tmp_path)
    with serve(environment, tmp_path) as url:
        check_server(url)


def check_names(source: Path, wheel: Path) -> None:
    assert source.name == f"topics_log-{topics.__version__}.tar.gz"
    assert wheel.name.startswith(f"topics_log-{topics.__version__}-cp3")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    ours = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "src").rglob("*")
        if file.suffix in {".py", ".pyx", ".pxi", ".pyi", ".js", ".css", ".svg", ".typed"}
    }
    assert ours - names == set()
    assert not [name for name in names if name.startswith(("tests/", "build/", "docs/"))]
    assert not list((ROOT / "src").glob("*.egg-info"))


def install(wheel: Path, environment: Path) -> Path:
    """Make an environment with the wheel; dependencies are lent, so that no index is asked."""
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin/python"
    run(UV, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python, wheel)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "lent.pth").write_text(f"{DEPENDENCIES}\n")
    return environment


def check_what_runs(environment: Path, folder: Path) -> None:
    facts = json.loads(run(environment / "bin/topics", "version", "--json", cwd=folder))
    assert (facts["version"], facts["kernel"]) == (topics.__version__, "native")
    program = (
        "import topics, importlib.metadata as m; print(topics.__file__, m.version('topics-log'))"
    )
    file, version = run(environment / "bin/python", "-c", program, cwd=folder).split()
    assert Path(file).is_relative_to(environment)
    assert version == topics.__version__


@contextmanager
def serve(environment: Path, folder: Path) -> Iterator[str]:
    command: list[str | Path] = [environment / "bin/topics", "serve", "--port", "0"]
    command += ["--data-dir", folder / "data"]
    with subprocess.Popen(
        command, cwd=folder, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        try:
            yield next(line[1] for line in map(READY.search, server.stderr) if line)
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate()
    assert server.returncode == 0


def check_server(url: str) -> None:
    with urllib.request.urlopen(f"{url}/v0/health") as answer:
        assert json.load(answer)["version"] == topics.__version__
    body = json.dumps({"records": [{"data": "tea"}]}).encode()
    request = urllib.request.Request(f"{url}/v0/topics/orders", body)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request) as answer:
        assert json.load(answer)["head_seq"] == 1
    with urllib.request.urlopen(f"{url}/console/topics/orders") as page:
        assert b"orders" in page.read()
