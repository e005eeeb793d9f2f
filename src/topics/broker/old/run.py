"""One import from its first file to its report: records, a sync, then the progress of groups."""

from collections.abc import Callable

from topics.broker.old.files import OldFile, Problem, find_files, read_offsets
from topics.broker.old.offsets import import_offset
from topics.broker.old.records import RecordImport
from topics.broker.old.report import ImportReport, Notebook
from topics.embedded import Log
from topics.limits import Limits
from topics.storage.disk.disk import Disk


def import_broker(
    old: Disk,
    log: Log | None,
    *,
    limits: Limits,
    dry_run: bool,
    tell: Callable[[Problem], None],
    meter: Callable[[int], None],
) -> ImportReport:
    """Take over a directory; `log` may be missing only for a dry run."""
    assert dry_run or log is not None
    notebook = Notebook(dry_run=dry_run, tell=tell)
    records = RecordImport(old, log, limits=limits, notebook=notebook, meter=meter)
    topics: dict[str, list[OldFile]] = {}
    for file in notebook.sound(find_files(old)):
        topics.setdefault(file.topic, []).append(file)
    for topic, files in topics.items():
        records.import_topic(topic, files)
    records.finish()  # before a group says that it is behind them
    for offset in notebook.sound(read_offsets(old)):
        import_offset(log, offset, records.ends, notebook)
    return notebook.report


def measure(old: Disk) -> int:
    """Return how many bytes a run will read."""
    return sum(file.size for file in find_files(old) if isinstance(file, OldFile))
