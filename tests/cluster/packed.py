"""`python -m tests.cluster.packed`: executors get the package, native parts too, by --archives.

Packs the installed libraries and our sources, starts a cluster whose workers know none of them, and
reads a topic there.
"""

import os
import sys
import sysconfig
import tarfile
import tempfile
from importlib.metadata import distribution
from pathlib import Path

from tests.cluster.standalone import ROOT, Standalone
from tests.pipeline.feed import Feed

from topics.pipeline import build_session
from topics.testing.server_process import ServerProcess

PACKAGES = (
    "msgspec", "xxhash", "pyarrow", "pandas", "numpy", "python-dateutil", "pytz", "six", "tzdata",
    "httpx", "httpcore", "h11", "anyio", "idna", "certifi", "sniffio", "typing_extensions",
)  # fmt: skip


def pack(target: Path) -> None:
    """Write what executors need besides Python and pyspark."""
    site = Path(sysconfig.get_path("purelib"))
    with tarfile.open(target, "w:gz", compresslevel=1) as archive:
        archive.add(ROOT / "src/topics", "topics")
        for name in PACKAGES:
            try:
                files = distribution(name).files or []
            except ModuleNotFoundError:
                continue  # not every version of the others needs it
            for top in {file.parts[0] for file in files if ".." not in file.parts}:
                archive.add(site / top, top)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="topics-packed-") as folder:
        place = Path(folder)
        pack(place / "env.tar.gz")
        print(f"packed {(place / 'env.tar.gz').stat().st_size >> 20} MiB", flush=True)
        with (
            ServerProcess(str(place / "data")) as server,
            Standalone(place / "cluster") as cluster,
            Feed(server.url, "packed") as feed,
        ):
            feed.number(1_000)
            return read(server.url, cluster, place)


def read(url: str, cluster: Standalone, place: Path) -> int:
    os.environ.update({k: v for k, v in cluster.environment.items() if k != "PYTHONPATH"})
    spark = build_session(
        app_name="topics packed",
        master=cluster.master,
        settings={
            "spark.archives": f"{place / 'env.tar.gz'}#env",
            "spark.executorEnv.PYTHONPATH": "env",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.log.level": "OFF",
        },
    )
    try:
        where = spark.sparkContext.parallelize([0], 1).map(_where).collect()[0]
        count = spark.read.format("topics").options(url=url, topic="packed").load().count()
    finally:
        spark.stop()
    print(f"an executor has topics in {where}, and read {count} records", flush=True)
    return 0 if "/env/topics/" in where and count == 1_000 else 1


def _where(_: int) -> str:
    from topics.kernel import _native  # noqa: PLC0415 - on an executor

    return str(_native.__file__)


if __name__ == "__main__":
    sys.exit(main())
