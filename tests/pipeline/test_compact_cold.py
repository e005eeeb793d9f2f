"""Dead cold records go, through the server's own operation."""

from pathlib import Path

from tests.pipeline.feed import Feed, wait_until

from topics.pipeline.jobs.compact_cold import CompactOptions, compact_cold
from topics.pipeline.jobs.job import JobRun
from topics.testing.server_process import ServerProcess


def test_cold_segments_are_rewritten_until_none_is_worth_it(tmp_path: Path) -> None:
    settings = {
        "TOPICS_SEGMENT_MAX_EVENTS": "50",
        "TOPICS_CHECKPOINT_MS": "20",
        "TOPICS_COLD_DIR": str(tmp_path / "cold"),
        "TOPICS_HOT_RETAIN_SEGMENTS": "0",
        "TOPICS_COMPACT_DEAD_RATIO": "1",
    }
    with (
        ServerProcess(str(tmp_path / "data"), settings=settings) as server,
        Feed(server.url, "orders") as feed,
    ):
        feed.number(500)
        wait_until(
            lambda: sum(s["tier"] == "cold" for s in feed.manifest()["segments"]) >= 9,
            "cold segments",
        )
        for digit in range(8):
            feed.delete_tag(f"t{digit}")
        options = CompactOptions(url=server.url, segments_at_a_time=2)
        with JobRun("compact-cold", dry_run=True) as dry:
            compact_cold(options, dry)
        planned = dry.summary().detail["remaining"]
        with JobRun("compact-cold") as run:
            compact_cold(options, run)
        detail = run.summary().detail
        assert planned >= 9
        assert detail["rewritten"] >= 9
        assert detail["freed_bytes"] > 0
        assert detail["remaining"] == 0
        assert [r["data"]["n"] for r in feed.records()] == [n for n in range(500) if n % 10 > 7]
