"""What a reader or a writer may be told, checked before anything is asked of a server.

Keeps: an unknown option is refused with the nearest known one, and no text of ours shows a token.
Names are those of Spark, which are compared without regard to case.
"""

import difflib
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast
from urllib.parse import urlsplit

from msgspec import Struct

from topics.errors import OptionError, RequestError
from topics.limits import check_topic_name

Via: TypeAlias = Literal["auto", "segments", "http"]
BadRow: TypeAlias = Literal["fail", "deadLetter"]
Where: TypeAlias = int | Literal["earliest", "latest"]
T = TypeVar("T")

MAX_SINK_ID_BYTES: Final = 64
BATCH_RECORDS_MAX: Final = 10_000

OBJECT_SCHEMES: Final = ("s3", "gs", "gcs", "abfs", "abfss")
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname", "outputmode"})
"""Options that Spark itself hands on to every source and sink."""


class Token(str):
    """A key that shows itself to the server alone."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Token(***)"


class SourceOptions(Struct, frozen=True, kw_only=True):
    """How to read."""

    topics: tuple[str, ...]
    url: str | None = None
    token: Token | None = None
    path: str | None = None
    starting: Mapping[str, Where] | Where | None = None
    ending: Mapping[str, Where] | Where | None = None
    starting_ts: int | None = None
    ending_ts: int | None = None
    max_records_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_partitions: int = 1
    records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    schema: str | None = None
    verify: bool = True
    group: str | None = None
    via: Via = "auto"
    push_down: bool = False
    shared_path: str | None = None
    """What every executor must see before it reads: where its rows will be written."""


class SinkOptions(Struct, frozen=True, kw_only=True):
    """How to write."""

    url: str
    token: Token | None = None
    topic: str | None = None
    sink_id: str | None = None
    on_bad_row: BadRow = "fail"
    dead_letter_topic: str | None = None
    batch_records: int = BATCH_RECORDS_MAX
    records_per_second: int | None = None
    """Of one task."""
    drop_dead_letter_meta: bool = False


class _Given:
    """The options as they were given, taken out one by one."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        by_lower = {name.lower(): name for name in known}
        for name in given:
            if name.lower() not in by_lower and name.lower() not in _OF_SPARK:
                near = difflib.get_close_matches(name.lower(), by_lower, n=1)
                hint = f"did you mean `{by_lower[near[0]]}`?" if near else f"known: {known}"
                raise OptionError(f"`{name}` is no option of topics: {hint}")

    def take(self, name: str, parse: Callable[[str, str], T]) -> T | None:
        text = self._given.get(name.lower())
        return None if text is None else parse(name, text)

    def text(self, name: str) -> str | None:
        return self.take(name, _parse_text)

    def token(self, read_file: Callable[[str], bytes]) -> Token | None:
        token, file = self._given.get("token"), self.text("tokenFile")
        if token is not None and file is not None:
            raise OptionError("`token` and `tokenFile` exclude each other: give one")
        if file is not None:
            token = read_file(file).decode().strip()
        return None if token is None else Token(token)


SOURCE_OPTIONS: Final = (
    "url", "token", "tokenFile", "path", "topic", "startingOffsets", "endingOffsets",
    "startingTimestamp", "endingTimestamp", "maxRecordsPerTrigger", "maxBytesPerTrigger",
    "minPartitions", "recordsPerPartition", "failOnDataLoss", "schema", "verify", "group", "via",
    "pushDown", "sharedPath",
)  # fmt: skip
SINK_OPTIONS: Final = (
    "url", "token", "tokenFile", "topic", "sinkId", "onBadRow", "deadLetterTopic", "batchRecords",
    "recordsPerSecond", "dropDeadLetterMeta",
)  # fmt: skip


def parse_source_options(
    given: Mapping[str, str], *, read_file: Callable[[str], bytes]
) -> SourceOptions:
    """Check the options of a reader; `read_file` is asked for the content of `tokenFile`."""
    options = _Given(given, SOURCE_OPTIONS)
    topics = options.take("topic", _parse_topics)
    if topics is None:
        raise OptionError("`topic` is missing: a name, a comma list, or a prefix like orders.*")
    parsed = SourceOptions(
        topics=topics,
        url=options.take("url", _parse_url),
        token=options.token(read_file),
        path=options.take("path", _parse_path),
        starting=options.take("startingOffsets", _parse_offsets),
        ending=options.take("endingOffsets", _parse_offsets),
        starting_ts=options.take("startingTimestamp", _parse_ts),
        ending_ts=options.take("endingTimestamp", _parse_ts),
        max_records_per_trigger=options.take("maxRecordsPerTrigger", _parse_positive),
        max_bytes_per_trigger=options.take("maxBytesPerTrigger", _parse_positive),
        min_partitions=options.take("minPartitions", _parse_positive) or 1,
        records_per_partition=options.take("recordsPerPartition", _parse_positive),
        fail_on_data_loss=options.take("failOnDataLoss", _parse_bool) is not False,
        schema=options.text("schema"),
        verify=options.take("verify", _parse_bool) is not False,
        group=options.text("group"),
        via=cast("Via", options.take("via", _one_of("auto", "segments", "http")) or "auto"),
        push_down=options.take("pushDown", _parse_bool) is True,
        shared_path=options.take("sharedPath", _parse_shared_path),
    )
    _check_source(parsed)
    return parsed


def parse_sink_options(
    given: Mapping[str, str], *, read_file: Callable[[str], bytes]
) -> SinkOptions:
    """Check the options of a writer."""
    options = _Given(given, SINK_OPTIONS)
    url = options.take("url", _parse_url)
    if url is None:
        raise OptionError("`url` is missing: the server to write to, http://host:4000")
    on_bad_row = options.take("onBadRow", _one_of("fail", "deadLetter")) or "fail"
    topic = options.take("topic", _parse_topic)
    dead_letter = options.take("deadLetterTopic", _parse_topic)
    if on_bad_row == "deadLetter" and dead_letter is None:
        if topic is None:
            raise OptionError("`onBadRow=deadLetter` needs `deadLetterTopic` or `topic`")
        dead_letter = f"{topic}.dead-letter"
    return SinkOptions(
        url=url,
        token=options.token(read_file),
        topic=topic,
        sink_id=options.take("sinkId", _parse_sink_id),
        on_bad_row=cast("BadRow", on_bad_row),
        dead_letter_topic=dead_letter,
        batch_records=min(
            options.take("batchRecords", _parse_positive) or BATCH_RECORDS_MAX, BATCH_RECORDS_MAX
        ),
        records_per_second=options.take("recordsPerSecond", _parse_positive),
        drop_dead_letter_meta=options.take("dropDeadLetterMeta", _parse_bool) is True,
    )


def _check_source(options: SourceOptions) -> None:
    if (options.url is None) == (options.path is None):
        raise OptionError("give either `url`, a server, or `path`, a directory")
    if options.path is not None and options.via == "http":
        raise OptionError("`via=http` needs `url`: a directory has no server")
    for ts, where, name in (
        (options.starting_ts, options.starting, "starting"),
        (options.ending_ts, options.ending, "ending"),
    ):
        if ts is not None and where is not None:
            raise OptionError(f"`{name}Timestamp` and `{name}Offsets` exclude each other: give one")
    if options.path is not None and options.group is not None:
        raise OptionError("`group` needs `url`: groups live on the server")


def _parse_text(name: str, text: str) -> str:
    if not text.strip():
        raise OptionError(f"`{name}` is empty")
    return text.strip()


def _parse_url(name: str, text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OptionError(f"`{name}` must look like http://host:4000")
    if parts.username is not None or parts.password is not None:
        raise OptionError(f"`{name}` may not carry a secret: use `token` or `tokenFile`")
    return text.rstrip("/")


def _parse_path(name: str, text: str) -> str:
    path = text.removeprefix("file://")
    if "://" in path:
        return _parse_object_uri(name, path)
    if not path.startswith("/"):
        raise OptionError(f"`{name}` must be absolute: executors have other working directories")
    return path.rstrip("/")


def _parse_shared_path(name: str, text: str) -> str:
    path = _parse_path(name, text)
    if is_object_uri(path):
        raise OptionError(f"`{name}` names an object store, which all machines see: leave it out")
    return path


def _parse_object_uri(name: str, text: str) -> str:
    parts = urlsplit(text)
    # The container of Azure stands where elsewhere a user would.
    user = None if parts.scheme.startswith("abfs") else parts.username
    if user is not None or parts.password is not None:
        raise OptionError(f"`{name}` may not carry a secret: keys come from the environment")
    if parts.scheme not in OBJECT_SCHEMES or not parts.netloc:
        raise OptionError(f"`{name}` must be a directory, or like s3://bucket/prefix")
    return parts._replace(path=parts.path.rstrip("/")).geturl()


def is_object_uri(uri: str) -> bool:
    return urlsplit(uri).scheme in OBJECT_SCHEMES


def _parse_topics(name: str, text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    for one in names:
        _check_pattern(name, one)
    return names


def _check_pattern(name: str, pattern: str) -> None:
    literal = pattern.removesuffix("*")
    if pattern == "*":
        return
    if "*" in literal:
        raise OptionError(f"`{name}`: {pattern!r} may have one star, at its end")
    _parse_topic(name, literal)


def _parse_topic(name: str, text: str) -> str:
    try:
        return check_topic_name(text)
    except RequestError as error:
        raise OptionError(f"`{name}`: {error}") from None


def _parse_sink_id(name: str, text: str) -> str:
    if not 1 <= len(text.encode()) <= MAX_SINK_ID_BYTES or text.startswith("$") or "/" in text:
        raise OptionError(
            f"`{name}` must have 1 to {MAX_SINK_ID_BYTES} bytes, no slash and no $ in front"
        )
    return text


def _parse_positive(name: str, text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise OptionError(f"`{name}` must be a whole number above 0, not {text!r}")
    return int(text)


def _parse_bool(name: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f"`{name}` must be true or false, not {text!r}")
    return text.strip().lower() == "true"


def _one_of(*allowed: str) -> Callable[[str, str], str]:
    def parse(name: str, text: str) -> str:
        found = next((one for one in allowed if one.lower() == text.strip().lower()), None)
        if found is None:
            raise OptionError(f"`{name}` must be one of {', '.join(allowed)}, not {text!r}")
        return found

    return parse


def _parse_ts(name: str, text: str) -> int:
    """Milliseconds since the epoch, or ISO 8601; without a zone it is UTC."""
    if text.strip().isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise OptionError(
            f"`{name}` must be milliseconds since the epoch or ISO 8601, not {text!r}"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def _parse_offsets(name: str, text: str) -> Mapping[str, Where] | Where:
    if text.strip() in ("earliest", "latest"):
        return cast("Where", text.strip())
    try:
        found: Any = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(map(_is_place, found.values())):
        raise OptionError(
            f'`{name}` must be earliest, latest or JSON like {{"orders": 17}}, not {text!r}'
        )
    return cast("Mapping[str, Where]", found)


def _is_place(value: object) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return 0 <= value < 2**63
    return value in ("earliest", "latest")
