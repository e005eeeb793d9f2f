"""Between JSON and the type that a user works with: msgspec Structs, dataclasses, pydantic models.

pydantic is never imported: its models bring what is needed as methods.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from topics.errors import PayloadMismatch, RequestError
from topics.model.diff import Record
from topics.model.encode import check_finite, encode_json
from topics.model.json_text import decode_value
from topics.model.queues import Job
from topics.model.stream import TypedJob, TypedRecord

T = TypeVar("T")


class Payload(Generic[T]):
    """Encodes values of one type and decodes the records that hold them."""

    def __init__(self, model: type[T] | None) -> None:
        self._decode = _decoder_of(model)

    def encode(self, value: T) -> msgspec.Raw:
        return encode_value(value)

    def typed(self, topic: str, record: Record) -> TypedRecord[T]:
        return TypedRecord(**_fields(record), value=self._value(topic, record))

    def typed_job(self, topic: str, job: Job) -> TypedJob[T]:
        return TypedJob(**_fields(job), value=self._value(topic, job))

    def _value(self, topic: str, record: Record) -> T:
        try:
            return self._decode(record.data_json)
        except ValueError as error:  # what msgspec and pydantic raise is one
            raise PayloadMismatch(topic, record.seq, str(error)) from error


def encode_value(value: object) -> msgspec.Raw:
    if not hasattr(value, "model_dump_json"):
        return msgspec.Raw(encode_json(value, what="data"))
    try:
        text: bytes = value.model_dump_json().encode()
    except (TypeError, ValueError, OverflowError) as error:
        raise RequestError(f"data must be JSON values: {error}") from None
    if b"null" in text and hasattr(value, "model_dump"):
        check_finite(value.model_dump(), what="data")
    return msgspec.Raw(text)


def _fields(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


def _decoder_of(model: type[T] | None) -> Callable[[msgspec.Raw], T]:
    if model is None:
        untyped: Callable[[Any], Any] = decode_value
        return untyped
    validate: Callable[[bytes], T] | None = getattr(model, "model_validate_json", None)
    if validate is not None:
        return lambda raw: validate(bytes(raw))
    return msgspec.json.Decoder(model).decode
