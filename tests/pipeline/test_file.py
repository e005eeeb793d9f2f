"""The pipeline file: what it may say, and what it would do."""

import msgspec
import pytest
from tests.unit.docs.pages import DOCS, code_blocks

from topics.errors import ConfigError
from topics.pipeline.explain import explain
from topics.pipeline.file import PipelineFile, default_pipeline, parse_pipeline
from topics.pipeline.job_specs import KINDS, LakeJob, parse_interval_ms
from topics.pipeline.lake.entry import TableFormat

SHOP = """
lake = "/srv/lake"
url = "http://127.0.0.1:4001"

[schemas]
order = "id BIGINT, total DOUBLE"

[sources.shop]
topics = ["orders", "carts.*"]

[tables.orders]
topics = ["orders"]
schema = "order"

[jobs.lake]
kind = "lake"
source = "shop"
trigger = "5s"

[jobs.tidy]
kind = "compact"
"""


def test_a_file_names_what_jobs_read_and_write() -> None:
    pipeline = parse_pipeline(SHOP, name="shop.toml")
    lake = pipeline.jobs["lake"]
    assert isinstance(lake, LakeJob)
    assert (pipeline.topics_of(lake), pipeline.starting_of(lake)) == ("orders,carts.*", "earliest")
    assert lake.interval_ms == 5_000
    (table,) = pipeline.typed_tables()
    assert (table.table, table.schema) == ("orders", "id BIGINT, total DOUBLE")
    assert table.takes("orders")
    assert not table.takes("orders.eu")


def test_a_plan_says_what_would_be_done() -> None:
    lake, tidy = explain(parse_pipeline(SHOP, name="shop.toml"))
    assert lake.reads == "orders,carts.* of http://127.0.0.1:4001, from earliest"
    assert lake.when == "every 5s"
    assert lake.writes == [
        "/srv/lake: _raw, _gaps",
        "/srv/lake: orders (orders; schema order)",
        "/srv/lake: a table for every other topic",
    ]
    assert (tidy.kind, tidy.when) == ("compact", "once, until all there is was read")


def test_the_default_is_a_lake_of_every_topic() -> None:
    pipeline = default_pipeline(lake="/srv/lake", url="http://127.0.0.1:4000")
    assert {job.kind for job in pipeline.jobs.values()} == {"lake", "rollup", "compact"}
    lake = pipeline.jobs["lake"]
    assert isinstance(lake, LakeJob)
    assert pipeline.topics_of(lake) == "*"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("trigger =", "triger ="), r"\[jobs.lake\]: `triger` is unknown: did you mean `trigger`"),
        (("[sources.shop]", "[source.shop]"), "`source` is unknown: did you mean `sources`"),
        (('source = "shop"', 'source = "shp"'), "names no source: did you mean `shop`"),
        (('schema = "order"', 'schema = "oder"'), "names no schema: did you mean `order`"),
        (('kind = "compact"', 'kind = "lake"'), "one lake has one job of kind lake"),
        (('kind = "compact"', 'kind = "audits"'), r"\[jobs.tidy\]: .* did you mean `audit`"),
        (('kind = "compact"', 'kinds = "compact"'), r"\[jobs.tidy\]: there is no kind None"),
        (('kind = "compact"', 'kind = ["compact"]'), r"\[jobs.tidy\]: there is no kind \['comp"),
        (("[tables.orders]", "[tables._raw]"), "the lake's own"),
        (('trigger = "5s"', 'trigger = "5 parsecs"'), "interval like 500ms"),
        (('"/srv/lake"', '"lake"'), "absolute"),
        (("[schemas]", "[schemas"), "shop.toml"),
    ],
)
def test_what_is_wrong_is_told_with_what_is_right(change: tuple[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_pipeline(SHOP.replace(*change), name="shop.toml")


def test_a_file_without_jobs_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no jobs"):
        parse_pipeline('lake = "/srv/lake"', name="x.toml")


@pytest.mark.parametrize(("text", "ms"), [("500ms", 500), ("2s", 2_000), ("3m", 180_000)])
def test_intervals_have_units(text: str, ms: int) -> None:
    assert parse_interval_ms(text) == ms


@pytest.mark.parametrize("text", ["", "0s", "5", "s", "-1s", "1.5s"])
def test_what_is_no_interval_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_interval_ms(text)


def test_the_file_of_the_reference_page_is_one() -> None:
    (block,) = code_blocks(DOCS / "reference" / "pipeline.md", "toml")
    pipeline = parse_pipeline(block, name="page")
    assert {job.kind for job in pipeline.jobs.values()} == set(KINDS)
    kinds: list[type[msgspec.Struct]] = [PipelineFile, *KINDS.values()]
    for kind in kinds:
        said = block.partition(f'kind = "{kind.__struct_config__.tag}"')[2].partition("\n[")[0]
        fields = {field.encode_name for field in msgspec.structs.fields(kind)} - {"trigger"}
        assert [name for name in sorted(fields) if name not in (said or block)] == [], kind


@pytest.mark.parametrize(
    ("kind", "line"),
    [("compact", 'source = "shop"'), ("lake", "window_ms = 5"), ("rollup", "grace_ms = 1")],
)
def test_what_a_kind_of_job_does_not_use_is_refused(kind: str, line: str) -> None:
    text = SHOP.partition("[jobs.lake]")[0] + f'[jobs.one]\nkind = "{kind}"\n{line}\n'
    with pytest.raises(
        ConfigError, match=f"kind {kind} does not use `{line.split(maxsplit=1)[0]}`"
    ):
        parse_pipeline(text, name="shop.toml")


def test_a_file_may_ask_for_tables_of_another_format() -> None:
    asked = parse_pipeline(f'format = "delta"\n{SHOP}', name="shop.toml")
    assert asked.table_format == TableFormat("delta")
    assert explain(asked)[0].writes[-1] == "/srv/lake: all of it as tables of delta"
    assert parse_pipeline(SHOP, name="shop.toml").table_format is None
    with pytest.raises(ConfigError, match="goes with iceberg"):
        parse_pipeline(f'catalog = "prod"\n{SHOP}', name="shop.toml")
    with pytest.raises(ConfigError, match="format"):
        parse_pipeline(f'format = "orc"\n{SHOP}', name="shop.toml")


HEAD = 'lake = "/srv/lake"\n[sources.shop]\ntopics = ["orders", "carts.*"]\n'
BULK = """
[jobs.old]
kind = "bulk-load"
topic = "old"
path = "/data/old/"
format = "csv"
option = { sep = ";" }
config = { ttl_ms = 60000 }
[jobs.again]
kind = "replay"
into = "fixed"
name = "fix-1"
topic = "old"
from = 10
to = 20
rate = 500
[jobs.restore]
kind = "replay"
into = "fixed"
name = "fix-2"
lake = "/srv/lake"
where = "topic = 'orders'"
[jobs.check]
kind = "audit"
source = "shop"
trigger = "1h"
html = "/srv/audit.html"
[jobs.dead]
kind = "compact-cold"
min_dead_ratio = 0.25
at_a_time = 8
"""


def test_jobs_on_whole_topics_take_the_options_of_their_commands() -> None:
    old, again, restore, check, dead = explain(parse_pipeline(HEAD + BULK, name="file"))
    url = "http://127.0.0.1:4000"
    assert (old.reads, old.writes) == ("/data/old/ (csv)", ["topic old, unless it is there"])
    assert again.reads == f"old of {url}, from 10 to 20"
    assert again.writes == ["topic fixed, as producer fix-1, 500 records a second"]
    assert restore.reads == "/srv/lake, from 1 to the end, where topic = 'orders'"
    assert check.reads == f"every frame of orders,carts.* of {url}, /srv/lake"
    assert (check.writes, check.when) == (["/srv/audit.html"], "every 1h")
    assert dead.reads == f"cold segments of * of {url}"
    assert "25%" in dead.writes[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('name = "fix-1"', 'name = "fix-1"\ntrigger = "1h"'), r"\[jobs.again\]: .* runs once"),
        (('into = "fixed"\n', ""), r"\[jobs.again\]: .*missing required field `into`"),
        (('name = "fix-2"', 'name = "fix-1"'), r"\[jobs.restore\]: another replay has the name"),
        (("to = 20", "to = 5"), r"\[jobs.again\]: the range ends at 5, before 10"),
        (("from = 10", "from = 0"), r"\[jobs.again\]: .*>= 1.*from"),
        (("from = 10", "form = 10"), r"`form` is unknown: did you mean `from`"),
        (('topic = "old"\nfrom', "from"), "either a topic or a lake"),
        (('"/data/old/"', '"data/old/"'), r"\[jobs.old\]: data/old/ must be absolute"),
        (('topic = "old"\npath', 'topic = "no name"\npath'), r"\[jobs.old\]: .*no name"),
        (('format = "csv"', 'format = "orc"'), r"\[jobs.old\]: Invalid enum value 'orc'"),
        (('html = "/srv', 'lake = ["lake"]\nhtml = "/srv'), r"\[jobs.check\]: lake must be abs"),
        (('html = "/srv', 'where = "/srv'), "kind audit does not use `where`"),
        (('source = "shop"', 'source = "shp"'), "names no source: did you mean `shop`"),
        (("min_dead_ratio = 0.25", "min_dead_ratio = 25"), "<= 1.0.*min_dead_ratio"),
        (("[jobs.dead]", '[jobs.o2]\nkind = "bulk-load"\ntopic = "old"\npath = "/x"\n[jobs.dead]'),
         "another job loads 'old'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_job_on_whole_topics_is_told_before_it_runs(
    change: tuple[str, str], message: str
) -> None:
    text = (HEAD + BULK).replace(*change, 1)
    assert text != HEAD + BULK
    with pytest.raises(ConfigError, match=message):
        parse_pipeline(text, name="file")
