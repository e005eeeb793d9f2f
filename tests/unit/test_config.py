"""Config: defaults < file < environment < flags, and what is refused."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.config import (
    RESERVED,
    ServerConfig,
    Setting,
    format_bytes,
    load_config,
    parse_bytes,
    settings,
    wal_shard_count,
)
from topics.errors import ConfigError
from topics.limits import Limits

REFERENCE = Path(__file__).parents[2] / "docs/reference/configuration.md"
NUMBERS = [setting for setting in settings().values() if setting.low is not None]


def test_nothing_given_gives_the_defaults() -> None:
    loaded = load_config()
    assert loaded.config == ServerConfig()
    assert set(loaded.sources.values()) == {"default"}
    assert loaded.reserved == ()


def test_the_defaults_are_those_of_the_contract() -> None:
    config = ServerConfig()
    assert config.data_dir == "./topics-data"
    assert config.cold_dir is None
    assert config.wal_file_bytes == 67_108_864
    assert config.disk_sync_ms == 50
    assert config.segment_max_events == 10_000
    assert config.segment_max_bytes == 67_108_864
    assert config.segment_max_age_ms == 3_600_000
    assert config.hot_retain_segments == 4
    assert config.hot_retain_bytes == 0
    assert config.compact_dead_ratio == 0.5
    assert config.tail_cache_bytes == 268_435_456
    assert (config.commit_window_min_us, config.commit_window_max_us) == (500, 10_000)
    assert (config.snapshot_ms, config.snapshot_wal_bytes) == (60_000, 67_108_864)


def test_the_limits_are_settings_too() -> None:
    loaded = load_config(environ={"TOPICS_MAX_TOPICS": "5"})
    assert isinstance(loaded.config, Limits)
    assert loaded.config.max_topics == 5


def test_each_source_wins_over_the_one_before_and_is_named() -> None:
    file = "sweep_ms = 1\ncold_threads = 11\nwal_shards = 21"
    environ = {"TOPICS_COLD_THREADS": "12", "TOPICS_WAL_SHARDS": "22"}
    loaded = load_config(
        toml_text=file,
        toml_name="my.toml",
        environ=environ,
        flags={"wal_shards": "23", "disk_sync_ms": None},
    )
    config, sources = loaded.config, loaded.sources
    assert (config.sweep_ms, sources["sweep_ms"]) == (1, "file:my.toml")
    assert (config.cold_threads, sources["cold_threads"]) == (12, "env:TOPICS_COLD_THREADS")
    assert (config.wal_shards, sources["wal_shards"]) == (23, "flag:--wal-shards")
    assert (config.disk_sync_ms, sources["disk_sync_ms"]) == (50, "default")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("7", 7),
        ("64_000", 64_000),
        ("1KiB", 1024),
        ("2 MiB", 2_097_152),
        ("3gib", 3 << 30),
    ],
)
def test_a_size_may_carry_a_unit(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@given(st.integers(min_value=0))
def test_a_formatted_size_is_read_back(size: int) -> None:
    assert parse_bytes(format_bytes(size)) == size


@given(st.text(max_size=12) | st.from_regex(r"[0-9]{1,4} ?[KMGTkmgt]?i?[Bb]?", fullmatch=True))
def test_any_text_is_a_size_or_comes_back(text: str) -> None:
    parsed = parse_bytes(text)
    assert isinstance(parsed, int) or parsed == text


def test_a_file_may_give_a_size_as_text_or_number() -> None:
    config = load_config(toml_text='wal_file_bytes = "1MiB"\nwal_queue_bytes = 4096').config
    assert config.wal_file_bytes == 1_048_576
    assert config.wal_queue_bytes == 4_096


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("off", False)])
def test_a_switch_is_read_from_text(*, text: str, value: bool) -> None:
    assert load_config(environ={"TOPICS_VERIFY_READS": text}).config.verify_reads is value


def test_a_whole_number_is_a_ratio_too() -> None:
    assert load_config(toml_text="compact_dead_ratio = 1").config.compact_dead_ratio == 1.0


def test_backups_go_to_a_folder() -> None:
    with pytest.raises(ConfigError, match="TOPICS_BACKUP_DIR must be a folder: s3://"):
        load_config(environ={"TOPICS_BACKUP_DIR": "s3://key:secret@bucket"})


def test_an_empty_cold_dir_turns_the_tier_off() -> None:
    loaded = load_config(toml_text='cold_dir = "cold"', environ={"TOPICS_COLD_DIR": ""})
    assert loaded.config.cold_dir is None


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"TOPICS_WAL_SHARD": "1"}, "TOPICS_WAL_SHARD: did you mean TOPICS_WAL_SHARDS?"),
        ({"TOPICS_SEGMENTS_MAX_AGE": "1"}, "did you mean TOPICS_SEGMENT_MAX_AGE_MS?"),
        ({"TOPICS_API_KEY": "k"}, "did you mean TOPICS_API_KEYS?"),
        ({"TOPICS_wal_shards": "1"}, "did you mean TOPICS_WAL_SHARDS?"),
        ({"TOPICS_XYZZY": "1"}, "nothing has a name like it"),
        ({"TOPICS_WAL_SHARDS": "99"}, "TOPICS_WAL_SHARDS must be a whole number from 0 to 64"),
        ({"TOPICS_WAL_SHARDS": ""}, "must be a whole number from 0 to 64, not ''"),
        ({"TOPICS_WAL_SHARDS": "4.0"}, "not '4.0'"),
        ({"TOPICS_WAL_SHARDS": "٤"}, "TOPICS_WAL_SHARDS must be"),
        ({"TOPICS_WAL_FILE_BYTES": "64MB"}, "a size from 4 KiB to 4 GiB, written like 65536"),
        ({"TOPICS_TAIL_CACHE_BYTES": "-1"}, "a size of at least 1 MiB"),
        ({"TOPICS_COMPACT_DEAD_RATIO": "1.5"}, "a number from 0.0 to 1.0, not 1.5"),
        ({"TOPICS_COMPACT_DEAD_RATIO": "nan"}, "not 'nan'"),
        ({"TOPICS_VERIFY_READS": "maybe"}, "must be true or false, not 'maybe'"),
        ({"TOPICS_DATA_DIR": ""}, "TOPICS_DATA_DIR must be text that is not empty"),
        ({"TOPICS_COLD_DIR": "./topics-data/"}, "must not be the folder of TOPICS_DATA_DIR"),
        (
            {"TOPICS_COMMIT_WINDOW_MIN_US": "20000"},
            "TOPICS_COMMIT_WINDOW_MIN_US must not be above TOPICS_COMMIT_WINDOW_MAX_US",
        ),
    ],
)
def test_a_wrong_variable_is_refused_by_name(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_config(environ=environ)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wal_shrads = 1", "unknown setting 'wal_shrads' (file:my.toml): did you mean wal_shards?"),
        ("[segment]\nmax_events = 1", "unknown setting 'segment'"),
        ("wal_shards = true", "not True (file:my.toml)"),
        ("wal_shards = 1.0", "not 1.0 (file:my.toml)"),
        ("compact_dead_ratio = nan", "not nan (file:my.toml)"),
        ("verify_reads = 1", "must be true or false, not 1"),
        ("data_dir = 7", "TOPICS_DATA_DIR must be text"),
        ("wal_shards = ", "my.toml is not TOML"),
        ('api_keys = "k"', "'api_keys' cannot be set in my.toml"),
    ],
)
def test_a_wrong_file_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_config(toml_text=text, toml_name="my.toml")
    assert message in str(refusal.value)


def test_a_wrong_flag_is_refused_under_its_own_name() -> None:
    with pytest.raises(ConfigError, match=r"not '0' \(flag:--segment-max-events\)|not 0 \(flag"):
        load_config(flags={"segment_max_events": "0"})
    with pytest.raises(ConfigError, match="did you mean data_dir"):
        load_config(flags={"datadir": "x"})


def test_a_cold_url_is_refused_without_repeating_its_secret() -> None:
    with pytest.raises(ConfigError, match="s3://") as refusal:
        load_config(environ={"TOPICS_COLD_DIR": "s3://key:secret@bucket/prefix"})
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_variable_of_someone_else_is_left_alone(name: str) -> None:
    loaded = load_config(environ={name: "x", "PATH": "y"})
    assert loaded.config == ServerConfig()
    assert loaded.reserved == (name,)


@pytest.mark.parametrize("setting", NUMBERS, ids=lambda setting: setting.name)
def test_a_number_past_either_end_of_its_range_cannot_be_built(setting: Setting) -> None:
    assert setting.low is not None
    assert setting.high is not None
    for value in (setting.low - 1, setting.high + 1):
        number = value if setting.kind == "ratio" else int(value)
        with pytest.raises(ConfigError, match=setting.env):
            ServerConfig(**{setting.name: number})  # type: ignore[arg-type] # the name decides


@pytest.mark.parametrize("setting", settings().values(), ids=lambda setting: setting.name)
def test_a_value_of_a_foreign_type_cannot_be_built(setting: Setting) -> None:
    with pytest.raises(ConfigError, match=setting.env):
        ServerConfig(**{setting.name: b"7"})  # type: ignore[arg-type] # that is the point


@given(st.dictionaries(st.sampled_from(sorted(settings())), st.text(max_size=8), max_size=4))
def test_any_text_loads_or_is_refused_with_a_config_error(flags: dict[str, object]) -> None:
    try:
        loaded = load_config(flags=flags)
    except ConfigError:
        return
    given = {name for name, source in loaded.sources.items() if source != "default"}
    assert given == set(flags)


@pytest.mark.parametrize(
    ("wal_shards", "cpus", "count"), [(0, 1, 1), (0, 2, 2), (0, 64, 8), (3, 64, 3), (12, 2, 12)]
)
def test_shards_follow_the_cpus_unless_set(wal_shards: int, cpus: int, count: int) -> None:
    assert wal_shard_count(ServerConfig(wal_shards=wal_shards), cpus=cpus) == count


def test_shards_are_counted_on_this_machine() -> None:
    assert 1 <= wal_shard_count(ServerConfig()) <= 8


@pytest.mark.parametrize("setting", settings().values(), ids=lambda setting: setting.name)
def test_every_setting_has_its_row_in_the_reference(setting: Setting) -> None:
    cells = (
        f"`{setting.name}`",
        setting.default_text,
        setting.range_text,
        setting.description,
    )
    assert f"| {' | '.join(cells)} |" in REFERENCE.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_every_other_variable_has_its_row_in_the_reference(name: str) -> None:
    assert (
        f"| `{name}` | {RESERVED[name].purpose} |"
        in REFERENCE.read_text(encoding="utf-8").splitlines()
    )
