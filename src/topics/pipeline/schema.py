"""The columns of a row, and what of a frame each of them needs."""

from collections.abc import Iterable
from typing import Final

from topics.errors import OptionError
from topics.kernel import COLUMN_DATA, COLUMN_META, COLUMN_NODE, COLUMN_TAG

ROW_DDL: Final = (
    "topic string, partition int, seq bigint, ts timestamp, key string, tag string, node string, "
    "meta string, data string, gap_from bigint, gap_to bigint, gap_reason string"
)
VALUE: Final = "value"
CORRUPT: Final = "_corrupt"

_NEEDS: Final = {
    "topic": 0,
    "partition": 0,
    "seq": 0,
    "ts": 0,
    "key": COLUMN_TAG | COLUMN_META,
    "tag": COLUMN_TAG,
    "node": COLUMN_NODE,
    "meta": COLUMN_META,
    "data": COLUMN_DATA,
    "gap_from": 0,
    "gap_to": 0,
    "gap_reason": 0,
    VALUE: COLUMN_DATA,
    CORRUPT: COLUMN_DATA,
}


def row_ddl(schema: str | None) -> str:
    """Return the row as Spark writes it; `schema` describes the payload."""
    if schema is None:
        return ROW_DDL
    return f"{ROW_DDL}, {VALUE} struct<{schema}>, {CORRUPT} string"


def frame_columns(names: Iterable[str]) -> int:
    """Return the parts of a frame that these columns need; 0: the index alone has them."""
    found = 0
    for name in names:
        if name not in _NEEDS:
            raise OptionError(f"topics has no column `{name}`: it has {', '.join(_NEEDS)}")
        found |= _NEEDS[name]
    return found
