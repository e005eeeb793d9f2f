"""Dead letters among the rows of a table: told before the server refuses them, or made jobs again.

Keeps: a row without a key of the server is not touched, nor made an object.
"""

from typing import Any

import pyarrow as pa

from topics.errors import BadRow
from topics.model.dead_letters import drop_letter_keys, find_letter_key

_SIGN = r"dead_letter_|\\u"


def letter_reason(key: str) -> str:
    return (
        f"`meta` has the key {key!r}, which only the server writes: rename it, or drop what makes "
        "the record a dead letter by dropDeadLetterMeta=true (--drop-dead-letter-meta)"
    )


def settle_letters(batch: pa.RecordBatch, *, drop: bool, where: str, first: int) -> pa.RecordBatch:
    """Drop keys of the server from the column `meta`, or refuse the first row that has one."""
    import pyarrow.compute as pc  # noqa: PLC0415 - takes long; only rows with a meta need it

    if "meta" not in batch.schema.names:
        return batch
    column = batch.column("meta").cast(pa.string())
    found = pc.match_substring_regex(column, _SIGN)
    if not pc.any(found).as_py():
        return batch
    texts: list[Any] = column.to_pylist()
    for row, text in enumerate(texts):
        key = None if text is None else find_letter_key(text.encode())
        if key is None:
            continue
        if not drop:
            raise BadRow(f"row {first + row} of {where}: {letter_reason(key)}")
        kept = bytes(drop_letter_keys(text.encode()))
        texts[row] = None if kept == b"null" else kept.decode()
    at = batch.schema.get_field_index("meta")
    return batch.set_column(at, "meta", pa.array(texts, pa.string()))
