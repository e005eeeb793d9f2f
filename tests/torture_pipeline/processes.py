"""Processes below a process, found in /proc, so that only our own are ever killed."""

from pathlib import Path


def workers_below(pid: int) -> list[int]:
    """Return the Python workers that a driver has started, at any depth."""
    parents = _parents()
    found = []
    for child in parents:
        at = child
        while at in parents and at != pid:
            at = parents[at]
        if at == pid and child != pid and _is_worker(child):
            found.append(child)
    return sorted(found)


def _parents() -> dict[int, int]:
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        found[int(entry.name)] = int(fields[1])
    return found


def _is_worker(pid: int) -> bool:
    try:
        return b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
