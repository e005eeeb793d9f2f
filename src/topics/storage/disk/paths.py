"""The name of every file in a data directory, built and parsed here and nowhere else."""

import re

FORMAT = "meta/FORMAT"
RUNNING = "meta/RUNNING"
STOPPED = "meta/STOPPED"
WATCH_LOG = "meta/watches.log"
OLD_WATCHES = "meta/watches.json"
RESERVE = "meta/reserve"
LOCK = ".topics.lock"
META_DIR = "meta"
WAL_DIR = "wal"
TOPICS_DIR = "topics"
UPLOADS_DIR = "uploads"
TEMPORARY_SUFFIX = ".tmp"
SPARE_WAL = "spare.tmp"
CURRENT = "CURRENT"

_SNAPSHOT = re.compile(r"snapshot\.(\d{4,})\.bin")
_WAL_FILE = re.compile(r"wal-(\d{20})\.log")
_SHARD_DIR = re.compile(r"shard-(\d{2,})")
_SEGMENT = re.compile(r"seg-(\d{16,20})\.(data|idx)")
_TAG_RUN = re.compile(r"tags-(\d{16,20})-(\d{16,20})\.run")
_TOPIC_DIR = re.compile(r"[0-9a-f]{16}")


def snapshot_path(number: int) -> str:
    return f"{META_DIR}/snapshot.{number:04d}.bin"


def parse_snapshot_name(name: str) -> int | None:
    return _first_number(_SNAPSHOT, name)


def wal_shard_dir(shard: int, *, shards: int) -> str:
    """Return the directory of a shard: flat when there is only one."""
    return WAL_DIR if shards == 1 else f"{WAL_DIR}/shard-{shard:02d}"


def parse_shard_dir_name(name: str) -> int | None:
    return _first_number(_SHARD_DIR, name)


def wal_file_name(first_frame: int) -> str:
    return f"wal-{first_frame:020d}.log"


def parse_wal_file_name(name: str) -> int | None:
    return _first_number(_WAL_FILE, name)


def topic_dir(topic_id: int) -> str:
    return f"{TOPICS_DIR}/{topic_id:016x}"


def parse_topic_dir_name(name: str) -> int | None:
    return int(name, 16) if _TOPIC_DIR.fullmatch(name) else None


def segment_data_name(first_seq: int) -> str:
    return f"seg-{first_seq:016d}.data"


def segment_idx_name(first_seq: int) -> str:
    return f"seg-{first_seq:016d}.idx"


def segment_data_path(topic_id: int, first_seq: int) -> str:
    return f"{topic_dir(topic_id)}/{segment_data_name(first_seq)}"


def segment_idx_path(topic_id: int, first_seq: int) -> str:
    return f"{topic_dir(topic_id)}/{segment_idx_name(first_seq)}"


def upload_dir(upload: str) -> str:
    """Return where an upload gathers segments, under their names, until they are attached."""
    return f"{UPLOADS_DIR}/{upload}"


def parse_segment_name(name: str) -> tuple[int, str] | None:
    """Return first seq and kind (`data` or `idx`)."""
    found = _SEGMENT.fullmatch(name)
    return (int(found[1]), found[2]) if found else None


def tag_run_path(topic_id: int, first_seq: int, last_seq: int) -> str:
    return f"{topic_dir(topic_id)}/tags-{first_seq:016d}-{last_seq:016d}.run"


def parse_tag_run_name(name: str) -> tuple[int, int] | None:
    found = _TAG_RUN.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


def _first_number(pattern: re.Pattern[str], name: str) -> int | None:
    found = pattern.fullmatch(name)
    return int(found[1]) if found else None
