"""Payloads to typed columns with Arrow's JSON reader: twice as fast as `from_json` afterwards.

Keeps: a payload that does not fit the type becomes a null value and keeps its text in `_corrupt`;
its neighbours are not harmed.
"""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from topics.errors import OptionError
from topics.pipeline.encode_value import variants_of


def parse_values(texts: pa.Array, value_type: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Return the values and, where there is none, the text; JSON `null` is a null value."""
    fits = pc.starts_with(texts, "{")
    chunks: list[pa.Array] = []
    parsed = _parse(texts.filter(fits), value_type, chunks)
    objects = pa.concat_arrays(chunks) if parsed else pa.nulls(0, value_type)
    places = pc.if_else(fits, pc.subtract(pc.cumulative_sum(pc.cast(fits, pa.int64())), 1), None)
    values = objects.take(places)
    is_null = pc.equal(texts, "null")
    corrupt = pc.if_else(pc.or_(pc.is_valid(values), is_null), None, texts)
    return values, pc.cast(corrupt, pa.string())


def check_value_type(value_type: pa.DataType) -> None:
    """Refuse what no payload could be read into, before anything is read."""
    reason = "a variant" if variants_of(value_type) is not None else None
    try:
        _parse_block(pa.array(["{}"]), value_type)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        reason = str(error)
    if reason is not None:
        raise OptionError(
            f"`schema` has a type that JSON is not read into here ({reason}): leave it out and use "
            "from_json or parse_json on `data`"
        )


def _parse(texts: pa.Array, value_type: pa.DataType, into: list[pa.Array]) -> bool:
    """Parse all at once; where that fails, halves, down to the payloads that do not fit."""
    if not len(texts):
        return bool(into)
    try:
        into.append(_parse_block(texts, value_type))
    except pa.ArrowInvalid:
        if len(texts) == 1:
            into.append(pa.nulls(1, value_type))
        else:
            middle = len(texts) // 2
            _parse(texts.slice(0, middle), value_type, into)
            _parse(texts.slice(middle), value_type, into)
    return True


def _parse_block(texts: pa.Array, value_type: pa.DataType) -> pa.Array:
    readable = _readable(value_type)
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    content = pc.binary_join(whole, "\n")[0].as_buffer()
    table = pj.read_json(
        pa.BufferReader(content),
        read_options=pj.ReadOptions(use_threads=False, block_size=max(content.size + 1, 1 << 10)),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema(list(readable)),
            newlines_in_values=True,
            unexpected_field_behavior="ignore",
        ),
    )
    if table.num_rows != len(texts):
        raise pa.ArrowInvalid("a payload is not one object")
    arrays = [table.column(field.name).combine_chunks().cast(field.type) for field in value_type]
    return pa.StructArray.from_arrays(arrays, fields=list(value_type))


def _readable(kind: pa.DataType) -> pa.DataType:
    """Return the type with texts for dates: the reader takes these for numbers of days alone."""
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_readable(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_readable(kind.value_type)))
    return kind
