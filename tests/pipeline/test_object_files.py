"""A directory that was copied into an object store is read as if it were still on disk."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.s3 import serving_bucket

import topics
from topics.errors import DiskFailed, FileMissing, OptionError
from topics.pipeline.options import SourceOptions, parse_source_options

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install topics-log[spark]")
pytest.importorskip("pyarrow._s3fs", reason="this pyarrow was built without S3")

from topics.pipeline.object_files import ObjectDisk
from topics.pipeline.read import TopicsReader, open_catalog, take_snapshot

SCHEMA = pa.schema([("seq", pa.int64()), ("tag", pa.string()), ("data", pa.string())])


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Fill a directory, of which a copy is served: `data` below the bucket."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "made-up")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with topics.open(str(tmp_path / "data"), segment_max_events=100) as log:
        log.append("orders", [{"data": {"n": n}, "tag": f"t{n % 10}"} for n in range(350)])
        log.delete("orders", match="t3")
        log.append("other", [{"data": 1}])
    with serving_bucket(tmp_path) as uri:
        yield uri


def below(bucket: str, name: str) -> str:
    return bucket.replace("s3://bucket", f"s3://bucket/{name}")


def options_of(path: str, **given: str) -> SourceOptions:
    def no_file(_: str) -> bytes:
        raise AssertionError

    return parse_source_options({"path": path, "topic": "orders", **given}, read_file=no_file)


def rows(options: SourceOptions) -> list[dict[str, Any]]:
    with closing(open_catalog(options)) as catalog:
        reader = TopicsReader(options, SCHEMA, take_snapshot(options, catalog))
    return [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def test_the_rows_are_those_of_the_directory(bucket: str, tmp_path: Path) -> None:
    on_disk = rows(options_of(str(tmp_path / "data")))
    assert len(on_disk) == 315
    assert rows(options_of(below(bucket, "data"))) == on_disk
    split = rows(options_of(below(bucket, "data"), recordsPerPartition="60", topic="ord*"))
    assert split == on_disk


def test_what_is_not_there_is_told(bucket: str) -> None:
    with pytest.raises(OptionError, match="holds no topics"):
        open_catalog(options_of(below(bucket, "elsewhere")))
    disk = ObjectDisk(below(bucket, "data"))
    assert not disk.exists("nothing")
    assert disk.list("nothing") == []
    with pytest.raises(FileMissing, match="data/nothing is not there"):
        disk.read("nothing")


def test_a_store_that_refuses_is_told(bucket: str) -> None:
    disk = ObjectDisk(below(bucket, "forbidden"))
    for look in (disk.list, disk.exists, disk.read):
        with pytest.raises(DiskFailed, match=r"s3://bucket/forbidden.*ACCESS_DENIED"):
            look("topics")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("s3://key:hidden@bucket/data", "may not carry a secret"),
        ("s3://hidden@bucket/data", "may not carry a secret"),
        ("abfs://box:hidden@account/data", "may not carry a secret"),
        ("ftp://host/data", "like s3://bucket/prefix"),
        ("s3:///data", "like s3://bucket/prefix"),
    ],
)
def test_a_uri_that_cannot_be_used_is_refused_without_its_secret(path: str, said: str) -> None:
    with pytest.raises(OptionError, match=said) as refused:
        options_of(path)
    assert "hidden" not in str(refused.value)
