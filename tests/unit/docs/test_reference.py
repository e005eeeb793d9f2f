"""The reference pages say what the code says: fields, errors, exit codes, commands, limits."""

import re
from collections.abc import Iterator
from typing import get_args

import msgspec
import pytest
from tests.unit.docs.pages import DOCS, ROOT, read

from topics import TopicConfig, TopicState, errors
from topics.api.routes import ROUTES
from topics.broker.commands import AUTH, COMMANDS
from topics.broker.line import MAX_ID_BYTES, Code
from topics.broker.listener import MAX_CONNECTIONS
from topics.broker.produce import PATIENCE_S
from topics.broker.session import MAX_PIPELINED, MAX_STRANGER_LINE_BYTES
from topics.cli import exit_codes
from topics.engine.diff import SCAN_BYTES_MAX, SCAN_RECORDS_MAX
from topics.engine.topics.idempotency import PRODUCER_HISTORY
from topics.model.append import Appended
from topics.model.delete import Deleted
from topics.model.diff import Tombstone
from topics.model.queues import Acked, Claimed, Extended, Nacked, QueueState
from topics.storage.wal.frame import BODY_TYPES, FrameType

ROW = re.compile(r"^\|(.+)\|$", re.MULTILINE)


def rows(page: str) -> list[list[str]]:
    cells = [[cell.strip() for cell in row.split("|")] for row in ROW.findall(read(DOCS / page))]
    return [row for row in cells if not set("".join(row)) <= set("- ")]


def error_classes() -> list[type[errors.TopicsError]]:
    return [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.TopicsError)
    ]


@pytest.mark.parametrize("field", TopicConfig.__struct_fields__)
def test_every_field_of_a_topic_config_is_explained(field: str) -> None:
    assert f"`{field}`" in read(DOCS / "reference/topics.md")


@pytest.mark.parametrize(
    ("page", "value"),
    [
        ("reference/topics.md", TopicState),
        ("reference/append.md", Appended),
        ("reference/delete.md", Deleted),
        ("concepts/tombstones.md", Tombstone),
        *(("reference/queues.md", value) for value in (Claimed, Acked, Nacked, Extended)),
        ("reference/queues.md", QueueState),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_field_of_an_answer_is_explained(page: str, value: type[msgspec.Struct]) -> None:
    text = read(DOCS / page)
    missing = [field for field in value.__struct_fields__ if f"`{field}`" not in text]
    assert missing == []


def test_the_page_of_topics_shows_the_real_defaults() -> None:
    shown = {row[0]: row[1] for row in rows("reference/topics.md")}
    config = TopicConfig()
    for field in ("type", "durability", "durable", "discard", "dedupe_node"):
        assert shown[f"`{field}`"] == f"`{msgspec.json.encode(getattr(config, field)).decode()}`"
    for field in ("ttl_ms", "cap_records", "cap_bytes"):
        assert shown[f"`{field}`"] == f"{getattr(config, field)} (off)"
    assert shown["`idempotency_window_ms`"] == str(config.idempotency_window_ms)


def test_every_error_stands_in_the_tree_with_its_code() -> None:
    shown = {}
    for row in rows("reference/errors.md"):
        if name := re.search(r"`(\w+)`", row[0]):
            shown[name[1]] = row[1].strip("`")
    assert shown == {error.__name__: error.code for error in error_classes()}


def test_every_exit_code_is_explained() -> None:
    shown = [int(row[0]) for row in rows("reference/cli.md") if row[0].isdigit()]
    assert shown == [
        exit_codes.OK,
        exit_codes.ERROR,
        exit_codes.USAGE,
        exit_codes.DAMAGE,
        exit_codes.LOCKED,
        exit_codes.LATER,
        exit_codes.NOT_THERE,
        exit_codes.GAPS,
        exit_codes.INTERRUPTED,
    ]


def test_the_page_of_http_has_every_route_and_no_other() -> None:
    shown = {route for row in rows("reference/http.md") for route in routes_in(row[0])}
    assert sorted(shown ^ {"GET /", *(route.label for route in ROUTES)}) == []


def routes_in(cell: str) -> Iterator[str]:
    """Yield the routes of a cell, where methods may share a path and paths a method or a begin."""
    methods: list[str] = []
    path, waiting = "", list[str]()
    for word in re.findall(r"`([^`]+)`", cell):
        method, _, place = word.rpartition(" ")
        if place.isupper():
            waiting.append(place)
            continue
        path = path.rpartition("/")[0] + place[1:] if place.startswith("…") else place
        methods = [*waiting, method] if method else methods
        waiting = []
        yield from (f"{one} {path}" for one in methods)


def test_the_page_of_metrics_has_every_metric_and_no_other() -> None:
    code = "".join(read(file) for file in (ROOT / "src/topics/api").glob("*metrics*.py"))
    ours = set(re.findall(r'"(topics_[a-z_]+)"', code))
    shown = set(re.findall(r"\btopics_[a-z_]+", read(DOCS / "reference/metrics.md")))
    assert len(ours) > 40
    assert sorted(ours - shown) == []
    by_topic = {name for name in shown if name.startswith("topics_topic_")}  # made from fields
    assert sorted(shown - ours - by_topic) == []


def test_every_command_and_code_of_the_line_protocol_is_explained() -> None:
    shown = {row[0].strip("`") for row in rows("reference/line-protocol.md")}
    assert {*COMMANDS, AUTH, *get_args(Code)} <= shown


def test_every_frame_type_stands_in_the_format_page() -> None:
    shown: dict[int, str] = {}
    for row in rows("internals/formats/wal.md"):
        numbers, names = row[0].split(" / "), row[1].split(" / ")
        if len(row) == 3 and numbers[0].isdigit():
            shown.update(zip(map(int, numbers), names, strict=True))
    bodies = {int(number): body.__name__ for number, body in BODY_TYPES.items()}
    assert shown == {int(FrameType.APPEND): "Append", **bodies}


def test_the_numbers_in_the_text_are_those_of_the_code() -> None:
    assert f"**{PRODUCER_HISTORY} writes**" in read(DOCS / "reference/append.md")
    assert f"**{SCAN_RECORDS_MAX:,}**" in read(DOCS / "reference/diff.md")
    assert f"**{SCAN_BYTES_MAX >> 20} MiB**" in read(DOCS / "reference/diff.md")
    lines = read(DOCS / "reference/line-protocol.md")
    assert f"1 to {MAX_ID_BYTES} bytes" in lines
    assert f"| connections | {MAX_CONNECTIONS} |" in lines
    assert f"on a connection | {MAX_PIPELINED};" in lines
    assert f"a line may have {MAX_STRANGER_LINE_BYTES} bytes" in lines
    assert f"for at most {PATIENCE_S:.0f} s" in lines


def test_the_figures_of_the_front_page_are_those_that_were_measured() -> None:
    measured = read(DOCS / "internals/benchmarks-server.md")
    measured += read(DOCS / "internals/benchmarks-engine.md")
    figures = re.findall(r"[\d.]+ [kM]/s|[\d.]+ s(?= \|)", read(ROOT / "README.md"))
    assert len(figures) == 6
    assert [figure for figure in figures if figure not in measured] == []
