"""Every setting of a process: its default, its range, and where its value came from.

Defaults < TOML file < environment < flags. Nothing here reads a file or the environment: the caller
hands in text and mappings, once, and gets a frozen value. A name nobody knows is an error, never a
default. The settings page is docs/reference/configuration.md.
"""

import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from topics.errors import ConfigError
from topics.limits import GIB, KIB, MIB, NO_CEILING, Limits
from topics.nearest import nearest_name

ENV_PREFIX: Final = "TOPICS_"
MAX_WAL_SHARDS: Final = 64
AUTO_WAL_SHARDS_MAX: Final = 8

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000
YEAR_MS: Final = 366 * DAY_MS


class Reserved(Struct, frozen=True):
    """A TOPICS_* variable that is no setting of `ServerConfig`, but not a misspelling either."""

    purpose: str
    secret: bool = False


RESERVED: Final[Mapping[str, Reserved]] = MappingProxyType(
    {
        "TOPICS_CONFIG": Reserved("path of the TOML file the command line reads"),
        "TOPICS_PURE_PYTHON": Reserved("1: run the pure-Python kernel"),
        "TOPICS_API_KEYS": Reserved("keys of the server: never a flag", secret=True),
        "TOPICS_API_KEYS_FILE": Reserved("a file with the keys of the server, one a line"),
        "TOPICS_URL": Reserved("where clients and the command line find the server"),
        "TOPICS_TOKEN": Reserved("the key that clients and the command line show", secret=True),
        "TOPICS_TOKEN_FILE": Reserved("a file with the key that jobs of the pipeline show"),
        "TOPICS_LAKE": Reserved("the directory of the lake that jobs of the pipeline use"),
    }
)


def _count(text: str, *, low: int, high: int) -> Meta:
    return Meta(ge=low, le=high, description=text)


def _size(text: str, *, low: int, high: int = NO_CEILING) -> Meta:
    return Meta(ge=low, le=high, description=text, extra={"unit": "bytes"})


def _ms(text: str, *, low: int, high: int) -> Meta:
    return Meta(ge=low, le=high, description=text, extra={"unit": "ms"})


def _us(text: str, *, low: int, high: int) -> Meta:
    return Meta(ge=low, le=high, description=text, extra={"unit": "us"})


class ServerConfig(Limits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one process; a value out of its range cannot be built.

    It is a `Limits` too: the limits are settings with the same flat names.
    """

    data_dir: Annotated[str, Meta(description="where everything is kept")] = "./topics-data"
    cold_dir: Annotated[
        str | None, Meta(description="folder for old sealed segments; unset: no cold tier")
    ] = None

    backup_dir: Annotated[
        str | None, Meta(description="folder that backups over HTTP go to; unset: there are none")
    ] = None

    host: Annotated[str, Meta(description="address the HTTP server listens on")] = "127.0.0.1"
    port: Annotated[int, _count("port of the HTTP server; 0: any free one", low=0, high=65_535)] = (
        4000
    )
    broker_port: Annotated[
        int, _count("port of the line protocol; 0: it is off", low=0, high=65_535)
    ] = 0
    broker_partitions: Annotated[
        int, _count("partitions of a topic that a line creates", low=1, high=1024)
    ] = 3
    allow_insecure_no_auth: Annotated[
        bool, Meta(description="listen beyond this machine although no key is set")
    ] = False
    probe_auth: Annotated[bool, Meta(description="health and ready need a key too")] = False
    allowed_hosts: Annotated[
        str | None,
        Meta(description="names a Host header may have, by comma; *: any; unset: see the docs"),
    ] = None
    allowed_origins: Annotated[
        str | None,
        Meta(description="origins of other hosts whose pages may write and stream, by comma"),
    ] = None
    head_timeout_ms: Annotated[
        int, _ms("a request head must be here within", low=10, high=HOUR_MS)
    ] = 5_000
    body_min_bytes_per_s: Annotated[
        int, _count("a request body that comes slower is given up; 0: never", low=0, high=GIB)
    ] = 1_024
    idle_timeout_ms: Annotated[
        int, _ms("a connection without a request is closed after", low=10, high=DAY_MS)
    ] = 75_000
    max_connections: Annotated[
        int,
        _count(
            "open connections; 0: 20000, in any case fewer than there are descriptors",
            low=0,
            high=NO_CEILING,
        ),
    ] = 0
    slow_reader_ms: Annotated[
        int, _ms("a stream whose reader takes nothing is closed after", low=10, high=HOUR_MS)
    ] = 30_000
    stream_buffer_bytes: Annotated[
        int, _size("bytes that wait for one reader of a stream", low=4 * KIB, high=GIB)
    ] = MIB
    max_unfinished_body_bytes: Annotated[
        int, _size("bodies that are not whole yet; two of the largest always have room", low=MIB)
    ] = 192 * MIB
    max_unread_answer_bytes: Annotated[
        int, _size("answers that are not read yet, besides streams", low=MIB)
    ] = 128 * MIB
    max_unread_stream_bytes: Annotated[
        int, _size("what streams have sent and is not read yet", low=MIB)
    ] = 64 * MIB
    session_ttl_ms: Annotated[
        int, _ms("a watch session without a stream lives", low=100, high=DAY_MS)
    ] = 300_000
    drain_ms: Annotated[
        int, _ms("a stop waits so long for requests under way", low=0, high=HOUR_MS)
    ] = 5_000
    slow_request_ms: Annotated[
        int, _ms("a request that takes longer is logged; 0: none is", low=0, high=HOUR_MS)
    ] = 1_000

    wal_shards: Annotated[
        int,
        _count("independent logs; 0: as many as CPUs, at most 8", low=0, high=MAX_WAL_SHARDS),
    ] = 0
    wal_file_bytes: Annotated[
        int, _size("a WAL file is preallocated to this", low=4 * KIB, high=4 * GIB)
    ] = 64 * MIB
    wal_queue_bytes: Annotated[
        int, _size("bytes that may wait for the WAL; past it writes are throttled", low=KIB)
    ] = 64 * MIB
    commit_window_min_us: Annotated[
        int, _us("shortest time a group commit gathers under load", low=0, high=1_000_000)
    ] = 500
    commit_window_max_us: Annotated[
        int, _us("longest time a group commit gathers under load", low=0, high=1_000_000)
    ] = 10_000
    disk_reserve_bytes: Annotated[
        int,
        _size("room set apart for a full disk, at most `wal_file_bytes`; 0: none", low=0, high=GIB),
    ] = 16 * MIB
    disk_sync_ms: Annotated[
        int, _ms("a `disk` class record is synced at least this often", low=1, high=60_000)
    ] = 50

    checkpoint_ms: Annotated[
        int, _ms("how often WAL frames move into segments", low=1, high=DAY_MS)
    ] = 1_000
    checkpoint_bytes: Annotated[
        int, _size("new WAL bytes that start a checkpoint early", low=KIB)
    ] = 32 * MIB
    snapshot_ms: Annotated[int, _ms("how often a snapshot is taken", low=1, high=DAY_MS)] = 60_000
    snapshot_wal_bytes: Annotated[
        int, _size("new WAL bytes that start a snapshot early", low=KIB)
    ] = 64 * MIB

    # An index entry holds a 32-bit offset, and the record that crosses the bound still goes in.
    segment_max_bytes: Annotated[
        int, _size("a segment is sealed at this size", low=KIB, high=2 * GIB)
    ] = 64 * MIB
    segment_max_events: Annotated[
        int, _count("a segment is sealed at this many records", low=1, high=10_000_000)
    ] = 10_000
    segment_max_age_ms: Annotated[
        int, _ms("a segment is sealed at this age; 0: never by age", low=0, high=YEAR_MS)
    ] = 3_600_000
    hot_retain_segments: Annotated[
        int, _count("newest sealed segments of a topic that stay hot", low=0, high=1_000_000)
    ] = 4
    hot_retain_bytes: Annotated[
        int, _size("sealed bytes of a topic that stay hot; 0: not bounded by size", low=0)
    ] = 0
    compact_dead_ratio: Annotated[
        float,
        Meta(
            ge=0.0,
            le=1.0,
            description="dead share of a sealed segment above which it is rewritten; 0: never",
        ),
    ] = 0.5

    tail_cache_bytes: Annotated[
        int, _size("WAL that no segment holds yet, before writes wait for one", low=MIB)
    ] = 256 * MIB
    sweep_ms: Annotated[
        int, _ms("how often retention and expiry are looked at", low=1, high=3_600_000)
    ] = 1_000
    cold_threads: Annotated[
        int, _count("threads that read the cold tier beside an event loop", low=1, high=64)
    ] = 2
    verify_reads: Annotated[
        bool, Meta(description="check the checksum of every record read from a segment")
    ] = True
    keep_freed_bytes: Annotated[
        int,
        _size("freed memory the process keeps for its next buffers; 0: as the system does", low=0),
    ] = 64 * MIB

    def __post_init__(self) -> None:
        for setting in settings().values():
            setting.check(getattr(self, setting.name))
        _check_dirs(self.data_dir, self.cold_dir, self.backup_dir)
        if self.commit_window_min_us > self.commit_window_max_us:
            raise ConfigError(
                "TOPICS_COMMIT_WINDOW_MIN_US must not be above TOPICS_COMMIT_WINDOW_MAX_US, "
                f"but {self.commit_window_min_us} > {self.commit_window_max_us}"
            )


Value = int | float | bool | str | None
Kind = Literal["count", "bytes", "ms", "us", "ratio", "switch", "text"]


class Setting(Struct, frozen=True, kw_only=True):
    """What is known about one field of `ServerConfig`, read off its annotation."""

    name: str
    kind: Kind
    default: Value
    description: str
    optional: bool = False
    low: float | None = None
    high: float | None = None

    @property
    def env(self) -> str:
        return _env_of_name(self.name)

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def default_text(self) -> str:
        """The default as a person would write it: `64 MiB`."""
        if self.default is None:
            return "not set"
        if isinstance(self.default, bool):
            return str(self.default).lower()
        if self.kind == "bytes" and isinstance(self.default, int):
            return format_bytes(self.default)
        return str(self.default)

    @property
    def range_text(self) -> str:
        """The values it takes, as a sentence part: `from 1 to 64`."""
        match self.kind:
            case "switch":
                return "true or false"
            case "text":
                return "text"
            case "bytes":
                return f"a size {self._bounds(format_bytes)}"
            case "ratio":
                return f"a number {self._bounds(str)}"
            case "count" | "ms" | "us":
                return f"a whole number {self._bounds(str)}"

    def parse(self, value: object, *, source: str) -> Value:
        """Read what a file, the environment or a flag gave; text is read as the kind asks."""
        parsed: object = value
        if isinstance(value, str):
            parsed = self._parse_text(value.strip())
        elif self.kind == "ratio" and type(value) is int:
            parsed = float(value)
        self.check(parsed, source=source)
        assert parsed is None or isinstance(parsed, int | float | str)
        return parsed

    def check(self, value: object, *, source: str = "") -> None:
        """Refuse a value of the wrong type or out of range, naming the variable and the range."""
        if value is None and self.optional:
            return
        if isinstance(value, str) and self.kind == "text" and value and "\0" not in value:
            return
        if type(value) is bool and self.kind == "switch":
            return
        if type(value) in self._number_types() and self._in_range(value):
            return
        raise ConfigError(self._refusal(value, source=source))

    def _bounds(self, show: Callable[[float], str]) -> str:
        assert self.low is not None
        assert self.high is not None
        if self.high >= NO_CEILING:
            return f"of at least {show(self.low)}"
        return f"from {show(self.low)} to {show(self.high)}"

    def _number_types(self) -> tuple[type, ...]:
        if self.kind in ("text", "switch"):
            return ()
        return (int, float) if self.kind == "ratio" else (int,)

    def _in_range(self, value: object) -> bool:
        assert isinstance(value, int | float)
        above = self.low is None or value >= self.low
        return above and (self.high is None or value <= self.high)

    def _refusal(self, value: object, *, source: str) -> str:
        wanted = self.range_text
        if self.kind == "bytes":
            wanted += ", written like 65536, 64KiB, 64MiB or 1GiB"
        if self.kind == "text":
            wanted = "text that is not empty"
        where = "" if source in ("", f"env:{self.env}") else f" ({source})"
        return f"{self.env} must be {wanted}, not {value!r}{where}"

    def _parse_text(self, text: str) -> Value:
        """Give the value the text stands for, or the text itself, which `check` then refuses."""
        match self.kind:
            case "text":
                return None if self.optional and not text else text
            case "switch":
                return _SWITCHES.get(text.lower(), text)
            case "ratio":
                return float(text) if _DECIMAL.fullmatch(text) else text
            case "bytes":
                return parse_bytes(text)
            case "count" | "ms" | "us":
                return int(text) if _WHOLE.fullmatch(text) else text


_WHOLE = re.compile(r"-?[0-9][0-9_]{0,30}")
_DECIMAL = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?")
_BYTES = re.compile(r"([0-9][0-9_]{0,30}) ?(kib|mib|gib)", re.IGNORECASE)
_UNITS: Final = {"kib": KIB, "mib": MIB, "gib": GIB}
_SWITCHES: Final = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}


def parse_bytes(text: str) -> int | str:
    """`64MiB` → 67108864; text that is no size comes back as it is."""
    if match := _BYTES.fullmatch(text):
        return int(match[1]) * _UNITS[match[2].lower()]
    return int(text) if _WHOLE.fullmatch(text) else text


def format_bytes(size: float) -> str:
    """67108864 → `64 MiB`: in the largest unit that divides it."""
    for unit in ("GiB", "MiB", "KiB"):
        whole, rest = divmod(size, _UNITS[unit.lower()])
        if whole and not rest:
            return f"{whole} {unit}"
    return str(size)


class LoadedConfig(Struct, frozen=True, kw_only=True):
    """A config, and for every setting where its value came from.

    A source is `default`, `file:NAME`, `env:VARIABLE` or `flag:--NAME`. `reserved` names the
    TOPICS_* variables that were set and are no settings.
    """

    config: ServerConfig
    sources: Mapping[str, str]
    reserved: tuple[str, ...] = ()


def load_config(
    *,
    toml_text: str = "",
    toml_name: str = "topics.toml",
    environ: Mapping[str, str] = MappingProxyType({}),
    flags: Mapping[str, object] = MappingProxyType({}),
) -> LoadedConfig:
    """Put the four sources together; a flag that is None was not given."""
    values: dict[str, Value] = {}
    sources = dict.fromkeys(settings(), "default")
    given = [
        *((name, raw, f"file:{toml_name}") for name, raw in _read_toml(toml_text, toml_name)),
        *((_name_of_env(key), raw, f"env:{key}") for key, raw in _topics_variables(environ)),
        *((name, raw, "flag") for name, raw in flags.items() if raw is not None),
    ]
    for name, raw, source in given:
        setting = settings().get(name)
        if setting is None:
            raise ConfigError(f"unknown setting {name!r} ({source}){nearest(name, [*settings()])}")
        where = f"flag:{setting.flag}" if source == "flag" else source
        values[name] = setting.parse(raw, source=where)
        sources[name] = where
    return LoadedConfig(
        config=msgspec.convert(values, ServerConfig),
        sources=sources,
        reserved=tuple(sorted(key for key in environ if key in RESERVED)),
    )


def wal_shard_count(config: ServerConfig, *, cpus: int | None = None) -> int:
    """How many WAL shards to run: what was set, or one for each CPU up to eight."""
    if config.wal_shards:
        return config.wal_shards
    return max(1, min(cpus or os.cpu_count() or 1, AUTO_WAL_SHARDS_MAX))


@cache
def settings() -> Mapping[str, Setting]:
    """Every setting by name, in the order of the fields: server first, then limits."""
    fields = {field.name: field for field in msgspec.structs.fields(ServerConfig)}
    limits = {field.name for field in msgspec.structs.fields(Limits)}
    ordered = [name for name in fields if name not in limits]
    ordered += [name for name in fields if name in limits]
    return MappingProxyType({name: _describe(fields[name]) for name in ordered})


def _describe(field: msgspec.structs.FieldInfo) -> Setting:
    meta = field.type.__metadata__[0]
    plain = field.type.__origin__
    assert isinstance(meta, Meta)
    kinds: dict[object, Kind] = {int: "count", float: "ratio", bool: "switch"}
    kind = (meta.extra or {}).get("unit") or kinds.get(plain, "text")
    return Setting(
        name=field.name,
        kind=kind,
        default=field.default,
        description=meta.description or "",
        optional=plain == str | None,
        low=meta.ge,
        high=meta.le,
    )


def _read_toml(text: str, name: str) -> list[tuple[str, object]]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise ConfigError(f"{name} is not TOML: {problem}") from problem
    for key in document:
        reserved = RESERVED.get(ENV_PREFIX + key.upper())
        if reserved is not None:
            raise ConfigError(f"{key!r} cannot be set in {name} ({reserved.purpose})")
    return list(document.items())


def _topics_variables(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    return [
        (key, value)
        for key, value in environ.items()
        if key.startswith(ENV_PREFIX) and key not in RESERVED
    ]


def _name_of_env(key: str) -> str:
    """Give the setting a variable stands for; refuse a misspelt one under its own name."""
    name = key.removeprefix(ENV_PREFIX).lower()
    if name not in settings() or key != settings()[name].env:
        reserved = [other.removeprefix(ENV_PREFIX).lower() for other in RESERVED]
        hint = nearest(name, [*settings(), *reserved], shown=_env_of_name)
        raise ConfigError(f"unknown variable {key}{hint}")
    return name


def _env_of_name(name: str) -> str:
    return ENV_PREFIX + name.upper()


def nearest(name: str, known: Sequence[str], *, shown: Callable[[str], str] = str) -> str:
    """Return how an error about an unknown name goes on."""
    close = nearest_name(name, known)
    return ": nothing has a name like it" if close is None else f": did you mean {shown(close)}?"


def _check_dirs(data_dir: str, cold_dir: str | None, backup_dir: str | None) -> None:
    named = {
        "TOPICS_DATA_DIR": data_dir,
        "TOPICS_COLD_DIR": cold_dir or "",
        "TOPICS_BACKUP_DIR": backup_dir or "",
    }
    for env, value in named.items():
        scheme, separator, _ = value.partition("://")
        if separator:  # the rest may hold a password: it is not repeated
            raise ConfigError(
                f"{env} must be a folder: {scheme}:// (an object store) is not supported yet"
            )
    if cold_dir is not None and os.path.normpath(cold_dir) == os.path.normpath(data_dir):
        raise ConfigError("TOPICS_COLD_DIR must not be the folder of TOPICS_DATA_DIR")
