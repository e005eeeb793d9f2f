"""spark-submit as the page says: with the package installed, and with the package shipped.

For the second the executors run a bare Python: without `--archives` they cannot work, and the
driver says so.
"""

import json
import subprocess
import sys
import venv
from pathlib import Path

from tests.cluster.lines import (
    KEY,
    MASTER,
    block,
    here,
    last_words,
    run_lines,
    server_with_key,
)
from tests.cluster.standalone import ROOT, Standalone
from tests.pipeline.feed import Feed

RECORDS = 1_000


def check_submit(folder: Path) -> str:
    """Run both; return what was seen."""
    with (
        server_with_key(folder) as (url, places),
        Feed(url, "orders", token=KEY) as feed,
    ):
        feed.number(RECORDS)
        with Standalone(folder / "cluster") as cluster:
            _audit(folder, cluster, places)
        with Standalone(folder / "bare", bare=True) as cluster:
            return _shipped(folder, cluster, places)


def _audit(folder: Path, cluster: Standalone, places: dict[str, str]) -> None:
    lines = here(block("sh", "pipeline audit"), places | {MASTER: cluster.master})
    code, said = run_lines(lines, folder, cluster.environment)
    assert code == 0, said + last_words(folder)
    assert json.loads(said)["detail"]["healthy"] is True, said


def _shipped(folder: Path, cluster: Standalone, places: dict[str, str]) -> str:
    (folder / "main.py").write_text(here(block("py", "# main.py"), places))
    install, _, submit = block("sh", "--target env").partition("\n")
    bare = folder / "python/bin/python"
    venv.create(folder / "python", with_pip=False)
    submit = here(submit, {MASTER: cluster.master, "python3.11": str(bare)})
    alone = submit.replace("--archives env.tar.gz#env", "")
    assert alone != submit
    code, said = run_lines(alone, folder, cluster.environment)
    assert code != 0, f"executors found the package: {said}"
    assert "a Spark worker cannot run topics: install topics-log[spark]" in said, said
    assert "ModuleNotFoundError: No module named 'topics'" in said, said
    install = here(install, {"topics-log[executor]": f"{_wheel(folder)}[executor]"})
    code, said = run_lines(f"{install}\n{submit}", folder, cluster.environment)
    assert (code, f"{RECORDS} orders" in said) == (0, True), said + last_words(folder)
    packed = (folder / "env.tar.gz").stat().st_size >> 20
    return f"an audit; {RECORDS} records read by executors that got {packed} MiB by --archives"


def _wheel(folder: Path) -> Path:
    """Build what the index would have."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], check=True)
    (wheel,) = folder.glob("topics_log-*.whl")
    return wheel
