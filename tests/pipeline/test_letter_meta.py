"""Dead letters among rows that are loaded: named by their row, or loaded as the jobs they were."""

import json

import pyarrow as pa
import pytest

from topics.errors import BadRow
from topics.pipeline.letter_meta import settle_letters

PLAIN = ['{"a" : 1}', None, '{"b":"dead_letter_"}', "{no object dead_letter_"]


def batch(metas: list[str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"data": ["1"] * len(metas), "meta": pa.array(metas)})


@pytest.mark.parametrize("drop", [False, True])
def test_rows_without_letters_are_left_as_they_are(drop: bool) -> None:  # noqa: FBT001 - a case
    plain = batch(PLAIN)
    assert settle_letters(plain, drop=drop, where="task 0", first=0).equals(plain)
    bare = plain.select(["data"])
    assert settle_letters(bare, drop=drop, where="task 0", first=0) is bare


def test_a_letter_is_named_by_its_row_with_the_way_to_load_it() -> None:
    letters = batch([*PLAIN, json.dumps({"$dead_letter_from": "q"})])
    with pytest.raises(
        BadRow, match=r"row 104 of task 3: .*'\$dead_letter_from'.*--drop-dead-letter-meta"
    ):
        settle_letters(letters, drop=False, where="task 3", first=100)


def test_a_letter_is_loaded_as_the_job_it_was() -> None:
    metas = ['{"a":1,"$dead_letter_from":"q"}', '{"\\u0024dead_letter_from":"q"}']
    found = settle_letters(batch([*PLAIN, *metas]), drop=True, where="task 0", first=0)
    assert found.column("meta").to_pylist() == [*PLAIN, '{"a":1}', None]
    assert found.column("data").to_pylist() == ["1"] * 6
