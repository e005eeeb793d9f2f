"""The text format of metrics, held against a strict little parser."""

import re

import pytest

from topics.api.exposition import Family, as_json, counter, format_text, gauge
from topics.histogram import Histogram

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"'
_SAMPLE = re.compile(rf"({_NAME})(?:\{{({_LABEL}(?:,{_LABEL})*)\}})? (-?[0-9.e+-]+|NaN|[+-]Inf)")
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "gauge": ("",), "counter": ("",)}


def parse(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Read exposition text; every rule of the format that can be broken is asserted."""
    assert text.endswith("\n")
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    seen: set[str] = set()
    name = kind = ""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("# HELP "):
            name = line.split(" ")[2]
            assert re.fullmatch(_NAME, name), line
            assert name not in seen, f"{name} comes twice"
            seen.add(name)
            following = next(lines)
            assert following.startswith(f"# TYPE {name} "), following
            kind = following.split(" ")[3]
            continue
        sample = _SAMPLE.fullmatch(line)
        assert sample is not None, line
        assert sample[1] in {name + suffix for suffix in _SUFFIXES[kind]}, line
        labels = tuple((n, unescape(v)) for n, v in re.findall(_LABEL, sample[2] or ""))
        assert (sample[1], labels) not in found, line
        found[sample[1], labels] = float(sample[sample.re.groups])
    return found


def unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text)


def test_plain_numbers() -> None:
    families = [gauge("topics_a", "help", 3), counter("topics_b_total", "x\ny\\z", 0.5)]
    assert parse(format_text(families).decode()) == {
        ("topics_a", ()): 3,
        ("topics_b_total", ()): 0.5,
    }


@pytest.mark.parametrize("value", ['a"b', "a\\b", "a\nb", 'x="y",z', "a}b", "ü", "\\n", ""])
def test_labels_come_back_as_they_were(value: str) -> None:
    family = Family("topics_x", "gauge", "help", [({"topic": value, "b": "1"}, 7)])
    found = parse(format_text([family]).decode())
    assert found == {("topics_x", (("topic", value), ("b", "1"))): 7}


def test_a_histogram_adds_up() -> None:
    histogram = Histogram((10, 100))
    for value in (5, 10, 50, 1000):
        histogram.observe(value)
    found = parse(
        format_text([Family("topics_h", "histogram", "help", [({}, histogram)])]).decode()
    )
    assert found == {
        ("topics_h_bucket", (("le", "10"),)): 2,
        ("topics_h_bucket", (("le", "100"),)): 3,
        ("topics_h_bucket", (("le", "+Inf"),)): 4,
        ("topics_h_sum", ()): 1065,
        ("topics_h_count", ()): 4,
    }


def test_histograms_of_shards_become_one() -> None:
    one, two = Histogram((10,)), Histogram((10,))
    one.observe(1)
    two.observe(20)
    one.add(two)
    assert (one.counts, one.total, one.count) == ([1, 1], 21.0, 2)


def test_json_has_the_same_numbers() -> None:
    histogram = Histogram((10,))
    histogram.observe(3)
    families = [
        gauge("topics_a", "help", value=True),
        Family("topics_b", "gauge", "help", [({"topic": "t"}, 2)]),
        Family("topics_h", "histogram", "help", [({}, histogram)]),
    ]
    assert as_json(families) == {
        "topics_a": 1,
        "topics_b": [{"labels": {"topic": "t"}, "value": 2}],
        "topics_h": {"buckets": {"10": 1, "+Inf": 1}, "sum": 3.0, "count": 1},
    }
