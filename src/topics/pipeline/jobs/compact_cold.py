"""`compact-cold`: give the space of dead cold records back, many segments at a time.

The server does it, under its own rules and on its own threads; this asks until nothing is left.
Needs no Spark. Reference: docs/reference/pipeline-jobs.md.
"""

from contextlib import closing

from msgspec import Struct

from topics.errors import TopicNotFound
from topics.model.compact import COMPACT_SEGMENTS_MAX
from topics.model.segments import Manifest
from topics.pipeline.catalog import ServerCatalog
from topics.pipeline.jobs.job import JobRun
from topics.pipeline.options import Token
from topics.pipeline.server import Server


class CompactOptions(Struct, frozen=True, kw_only=True):
    """Which topics, and from what share of dead records on."""

    url: str
    token: Token | None = None
    topics: tuple[str, ...] = ("*",)
    min_dead_ratio: float = 0.5
    segments_at_a_time: int = 64


def compact_cold(options: CompactOptions, run: JobRun) -> None:
    """Compact every topic; the summary says what was rewritten, freed and could not be done."""
    rewritten = freed_bytes = left = 0
    with closing(Server(options.url, options.token)) as server:
        names = [state.part.name for state in ServerCatalog(server).states(options.topics)]
        for number, name in enumerate(names):
            if run.dry_run:
                left += count_dead(server.manifest(name), options.min_dead_ratio)
                continue
            done, freed, remaining = _compact(server, name, options)
            rewritten, freed_bytes, left = rewritten + done, freed_bytes + freed, left + remaining
            run.step(rows=done, batch=number, lag=len(names) - number - 1)
    run.detail.update(
        topics=len(names), rewritten=rewritten, freed_bytes=freed_bytes, remaining=left
    )


def _compact(server: Server, name: str, options: CompactOptions) -> tuple[int, int, int]:
    """Ask until nothing is left, or what is left is held by somebody."""
    rewritten = freed_bytes = 0
    at_a_time = min(options.segments_at_a_time, COMPACT_SEGMENTS_MAX)
    while True:
        try:
            found = server.compact(
                name, min_dead_ratio=options.min_dead_ratio, max_segments=at_a_time
            )
        except TopicNotFound:  # dropped since it was listed
            return rewritten, freed_bytes, 0
        rewritten += found.rewritten
        freed_bytes += found.freed_bytes
        if not found.rewritten or not found.remaining:
            return rewritten, freed_bytes, found.remaining


def count_dead(manifest: Manifest, min_dead_ratio: float) -> int:
    """Count cold segments with so many dead records; by records, as sizes are not told."""
    return sum(
        1
        for segment in manifest.segments
        if segment.tier == "cold"
        and segment.records
        and 1 - segment.live_records / segment.records > min_dead_ratio
    )
