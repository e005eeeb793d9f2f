"""What `topics top` makes of the metrics of a server, and how it fits a terminal."""

from io import StringIO

import pytest
from rich.console import Console

from topics.cli.bench import Phase, percentile
from topics.cli.samples import FSYNC, compare, parse_sample, percentile_ms
from topics.cli.screen import picture, share_lines

BEFORE = """# HELP topics_records_appended_total records written
topics_records_appended_total 100
topics_topic_head_seq{topic="busy"} 10
topics_topic_head_seq{topic="calm"} 90
"""
AFTER = """topics_records_appended_total 300
topics_topic_head_seq{topic="busy"} 110
topics_topic_head_seq{topic="calm"} 91
topics_topic_head_seq{topic="new"} 7
topics_topic_records_live{topic="busy"} 50
topics_topic_queue_ready{topic="jobs"} 4
topics_topic_queue_in_flight{topic="jobs"} 2
topics_group_lag{group="slow",topic="a",partition="0"} 5
topics_group_lag{group="slow",topic="a",partition="1"} 6
topics_group_lag{group="a\\"b\\\\c\\nd",topic="a",partition="0"} 1
topics_bytes_live 1e+06
not a metric at all
"""


def buckets(*counts: int) -> str:
    bounds = ("500", "1000", "+Inf")
    lines = [f'{FSYNC}_bucket{{le="{b}"}} {count}' for b, count in zip(bounds, counts, strict=True)]
    return "\n".join(lines)


def test_rates_are_those_between_two_looks() -> None:
    view = compare(parse_sample(BEFORE, at_s=10.0), parse_sample(AFTER, at_s=12.0))
    assert view.server["writes_per_s"] == 100.0
    assert view.server["bytes"] == 1_000_000
    assert [(row["topic"], row["writes_per_s"]) for row in view.topics] == [
        ("busy", 50.0),
        ("calm", 0.5),
        ("new", 0.0),
    ]
    assert view.queues == [{"queue": "jobs", "ready": 4, "in_flight": 2}]
    assert view.groups == [{"group": "slow", "lag": 11}, {"group": 'a"b\\c\nd', "lag": 1}]


def test_a_server_that_was_started_again_has_no_negative_rate() -> None:
    view = compare(parse_sample(AFTER, at_s=1.0), parse_sample(BEFORE, at_s=2.0))
    assert view.server["writes_per_s"] == 100.0


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ((0, 0, 0), (99, 100, 100), 0.5),
        ((0, 0, 0), (98, 100, 100), 1.0),
        ((1000, 1000, 1000), (1000, 1010, 1010), 1.0),
        ((7, 9, 9), (7, 9, 9), 1.0),
        ((0, 0, 0), (0, 0, 5), 1.0),
        ((0, 0, 0), (0, 0, 0), None),
    ],
)
def test_a_percentile_is_the_bound_it_falls_below(
    before: tuple[int, ...], after: tuple[int, ...], found: float | None
) -> None:
    old, new = parse_sample(buckets(*before), at_s=0), parse_sample(buckets(*after), at_s=1)
    assert percentile_ms(old, new, FSYNC, 0.99) == found


@pytest.mark.parametrize("counts", [(500, 0, 0), (500, 90, 90), (3, 90, 0), (0, 1, 2), (500, 1, 9)])
@pytest.mark.parametrize("size", [(80, 24), (80, 20), (200, 60)])
def test_the_picture_fits_the_terminal(counts: tuple[int, ...], size: tuple[int, int]) -> None:
    width, height = size
    topics, queues, groups = counts
    evil = "\x1b[31m" + "n" * 100
    before = "".join(f'topics_topic_head_seq{{topic="t{n}{evil}"}} 0\n' for n in range(topics))
    text = "".join(
        [
            *(f'topics_topic_head_seq{{topic="t{n}{evil}"}} {n}\n' for n in range(topics)),
            *(f'topics_topic_queue_ready{{topic="q{n}"}} {n}\n' for n in range(queues)),
            *(f'topics_group_lag{{group="g{n}"}} {n}\n' for n in range(groups)),
        ]
    )
    view = compare(parse_sample(before, at_s=0), parse_sample(text, at_s=1))
    out = StringIO()
    console = Console(file=out, width=width, height=height, color_system=None)
    console.print(picture(view, title="http://x", lines=height - 1, width=width))
    lines = out.getvalue().splitlines()
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    assert "\x1b" not in out.getvalue()
    for name, count in (("t", topics), ("q", queues), ("g", groups)):
        assert not count or any(line.startswith(f"{name}{count - 1}") for line in lines)


def test_no_section_takes_all_of_the_lines() -> None:
    shares = share_lines({"topics": 100, "queues": 100, "groups": 100}, 20)
    assert sum(shares.values()) + 6 <= 20
    assert min(shares.values()) >= 1


def test_a_phase_tells_its_rate_and_its_percentiles() -> None:
    row = Phase("p", 200, 2.0, [float(n) for n in range(100, 0, -1)]).row(10)
    assert (row["records_per_s"], row["p50_ms"], row["p99_ms"], row["max_ms"]) == (
        100, 51.0, 100.0, 100.0,
    )  # fmt: skip
    assert percentile([], 0.5) is None
