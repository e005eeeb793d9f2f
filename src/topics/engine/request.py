"""From what a caller says to what the engine takes: bodies, options, cursors.

Pure but for the errors.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from topics.engine.diff import DiffRequest
from topics.errors import RequestError
from topics.kernel import Batch, Gathering, parse_batch
from topics.kernel.refusals import BODY_FIELDS, MESSAGE_FIELDS
from topics.limits import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_LIMIT,
    KIB,
    MAX_BATCH_BYTES,
    MAX_IDEMPOTENCY_KEY_CHARS,
    Limits,
)
from topics.model.append import WriteOptions
from topics.model.diff import parse_match
from topics.model.encode import encode_json, list_records
from topics.model.topic_config import TopicConfig, check_config_names
from topics.model.whole_numbers import with_whole_numbers
from topics.nearest import unknown_field

MAX_PRODUCER_ID_BYTES = 128
MAX_PRODUCER_SEQ = 2**64 - 1
MAX_ENVELOPE_FIELD_BYTES = 64 * KIB
"""Of the fields besides the records, as they were spelled: decoding may not take long."""

NO_OPTIONS = WriteOptions()


class Write(Struct, frozen=True, kw_only=True):
    """A body, read and checked: frames without seqs, how to treat them, a new topic's config."""

    batch: Batch
    options: WriteOptions
    config: dict[str, Any]
    patient: bool = True
    """Waits for room on a full log instead of being refused at once."""


class _Envelope(Struct, frozen=True, kw_only=True):
    """The fields of a write besides its records: `ENVELOPE_FIELDS` of the kernel."""

    idempotency_key: str | None = None
    producer_id: str | None = None
    producer_seq: int | None = None
    create: bool = True
    config: dict[str, Any] | None = None
    disable_backpressure: bool = False
    queue: bool = False


def read_write(
    body: bytes | bytearray | memoryview,
    limits: Limits,
    *,
    keyed: bool = False,
    dead_letters: bool = False,
    message: bool = False,
) -> Write:
    """Read a JSON body `{"records": […], …}` in one pass; `keyed` is for partitions.

    A `message` of a WebSocket has an op, a topic and an id beside them.
    `dead_letters` is for the server's own writes: only they may say which queue a record died in.
    """
    batch = parse_batch(
        body,
        max_records=limits.max_batch_records,
        max_record_bytes=limits.max_record_bytes,
        max_meta_bytes=limits.max_meta_bytes,
        max_tag_bytes=limits.max_tag_bytes,
        max_node_bytes=limits.max_node_bytes,
        keyed=keyed,
        dead_letters=dead_letters,
    )
    if not batch.envelope:
        return Write(batch=batch, options=NO_OPTIONS, config={})
    envelope = _decode_envelope(batch.envelope, message=message)
    options = WriteOptions(
        idempotency_key=envelope.idempotency_key,
        producer_id=envelope.producer_id,
        producer_seq=envelope.producer_seq,
        create=envelope.create,
        queue=envelope.queue,
    )
    check_options(options)
    return Write(
        batch=batch,
        options=options,
        config=_config_of(envelope.config or {}, options),
        patient=not envelope.disable_backpressure,
    )


def begin_gathering(limits: Limits, *, max_bytes: int) -> Gathering:
    """Begin a batch of many bodies, each of them plain records and no larger than `max_bytes`."""
    return Gathering(
        max_bytes=max_bytes,
        max_records=limits.max_batch_records,
        max_record_bytes=limits.max_record_bytes,
        max_meta_bytes=limits.max_meta_bytes,
        max_tag_bytes=limits.max_tag_bytes,
        max_node_bytes=limits.max_node_bytes,
    )


def encode_write(records: Iterable[Mapping[str, Any]], *, node: str | None = None) -> bytes:
    """Make the JSON body of a write from Python values; `msgspec.Raw` passes bytes through."""
    fields: dict[str, object] = {"records": list_records(records)}
    if node is not None:
        fields["node"] = node
    return encode_json(fields, what="records")


def build_write(  # noqa: PLR0913 - one argument a field of the contract
    records: Iterable[Mapping[str, Any]],
    limits: Limits,
    *,
    node: str | None = None,
    idempotency_key: str | None = None,
    producer_id: str | None = None,
    producer_seq: int | None = None,
    create: bool = True,
    queue: bool = False,
    keyed: bool = False,
    dead_letters: bool = False,
) -> Write:
    """Make a write from Python values."""
    options = WriteOptions(
        idempotency_key=idempotency_key,
        producer_id=producer_id,
        producer_seq=producer_seq,
        create=create,
        queue=queue,
    )
    check_options(options)
    body = encode_write(records, node=node)
    write = read_write(body, limits, keyed=keyed, dead_letters=dead_letters)
    return msgspec.structs.replace(write, options=options, config=_config_of({}, options))


def _config_of(config: dict[str, Any], options: WriteOptions) -> dict[str, Any]:
    """Return the config of a topic that the write creates."""
    if not options.queue:
        return config
    if config.get("type", "queue") != "queue":
        raise RequestError("queue and a config of another type do not go together")
    return {**config, "type": "queue"}


def check_options(options: WriteOptions) -> None:
    key, producer_id, producer_seq = (
        options.idempotency_key,
        options.producer_id,
        options.producer_seq,
    )
    if key is not None and not 1 <= len(key) <= MAX_IDEMPOTENCY_KEY_CHARS:
        raise RequestError(f"idempotency_key must have 1 to {MAX_IDEMPOTENCY_KEY_CHARS} characters")
    if (producer_id is None) != (producer_seq is None):
        raise RequestError("producer_id and producer_seq go together")
    if producer_id is not None and not 1 <= len(producer_id.encode()) <= MAX_PRODUCER_ID_BYTES:
        raise RequestError(f"producer_id must have 1 to {MAX_PRODUCER_ID_BYTES} bytes")
    if producer_id is not None and producer_id.startswith("$"):
        # The server's own: a client's number would make a dead letter look like a repeat.
        raise RequestError("producer_id may not begin with $")
    if producer_seq is not None and not 0 <= producer_seq <= MAX_PRODUCER_SEQ:
        raise RequestError("producer_seq must be an unsigned 64-bit number")


def build_diff_request(  # noqa: PLR0913 - one argument a field of the contract
    config: TopicConfig,
    limits: Limits,
    *,
    from_seq: int = 0,
    from_ts: int = 0,
    until_ts: int = 0,
    limit: int = DEFAULT_LIMIT,
    node: str | Sequence[str] = (),
    match: object = None,
    include_tags: bool = False,
    include_meta: bool = True,
    max_batch_bytes: int = DEFAULT_BATCH_BYTES,
    verify: bool = True,
) -> DiffRequest:
    """Clamp and check what a reader asked for."""
    nodes = (node,) if isinstance(node, str) else node
    return DiffRequest(
        from_seq=from_seq,
        from_ts=from_ts,
        until_ts=until_ts,
        limit=min(limit or DEFAULT_LIMIT, limits.max_limit),
        nodes=tuple([n.encode() for n in nodes]) if nodes and config.dedupe_node else (),
        match=None if match is None else parse_match(match),
        include_tags=include_tags,
        include_meta=include_meta,
        max_batch_bytes=min(max_batch_bytes or DEFAULT_BATCH_BYTES, MAX_BATCH_BYTES),
        verify=verify,
    )


def _decode_envelope(envelope: Mapping[str, bytes], *, message: bool) -> _Envelope:
    fields = {}
    for name, raw in envelope.items():
        if name not in MESSAGE_FIELDS:
            fields[name] = msgspec.Raw(raw)
        elif not message:
            known = [other for other in BODY_FIELDS if other not in MESSAGE_FIELDS]
            raise unknown_field(name, known)
        if len(raw) > MAX_ENVELOPE_FIELD_BYTES:
            limit = MAX_ENVELOPE_FIELD_BYTES
            raise RequestError(f"append: {name!r} is longer than {limit} bytes: shorten it")
    raw_fields = msgspec.json.encode(fields)
    try:
        try:
            decoded = msgspec.json.decode(raw_fields, type=_Envelope)
        except msgspec.ValidationError:  # once more with 5.0 as 5: to some clients they are one
            decoded = msgspec.convert(
                with_whole_numbers(msgspec.json.decode(raw_fields)), type=_Envelope
            )
    except (msgspec.ValidationError, msgspec.DecodeError, OverflowError) as error:
        raise RequestError(f"append: {error}") from None
    if decoded.config:  # also where it is not used, as the topic is there already
        check_config_names({name: None for name in decoded.config if name != "partitions"})
    return decoded
