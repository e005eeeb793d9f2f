"""The keys of a dead letter: found however they are spelled, and dropped down to the job's meta."""

import pytest

from topics.model.dead_letters import drop_letter_keys, find_letter_key

NESTED = (
    b'{"$dead_letter_from":"b","$dead_letter_meta":{"$dead_letter_from":"a",'
    b'"$dead_letter_meta":{"k":1.50}}}'
)


@pytest.mark.parametrize(
    ("meta", "key", "dropped"),
    [
        (b"null", None, b"null"),
        (b'{"a":"$dead_letter_from"}', None, b'{"a":"$dead_letter_from"}'),
        (b'{"a":{"$dead_letter_from":1}}', None, b'{"a":{"$dead_letter_from":1}}'),
        (b'{"$dead_letter_from":"q"}', "$dead_letter_from", b"null"),
        (
            b'{"$key":"k","x": [1.0 ],"$dead_letter_x":2}',
            "$dead_letter_x",
            b'{"$key":"k","x":[1.0 ]}',
        ),
        (b'{"\\u0024dead_lett\\u0065r_from":1,"a":2}', "$dead_letter_from", b'{"a":2}'),
        (NESTED, "$dead_letter_from", b'{"k":1.50}'),
        (b'{"$dead_letter_meta":7}', "$dead_letter_meta", b"null"),
        (b'{"\\ud800":1,"$dead_letter_from":"q"}', "$dead_letter_from", b'{"\\ud800":1}'),
    ],
)
def test_a_letter_becomes_the_job_it_was(meta: bytes, key: str | None, dropped: bytes) -> None:
    assert find_letter_key(meta) == key
    assert bytes(drop_letter_keys(meta)) == dropped


@pytest.mark.parametrize("meta", [b"{$dead_letter_", b'["$dead_letter_from"]', b"", b'{"\\'])
def test_what_is_no_object_names_none(meta: bytes) -> None:
    assert find_letter_key(meta) is None
