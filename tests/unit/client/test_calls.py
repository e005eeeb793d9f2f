"""What a call sends: what was given, and nothing that was not."""

import json
from typing import Any

import pytest

from topics.client import calls


@pytest.mark.parametrize(
    ("before_seq", "match", "sent"),
    [
        (3, None, {"before_seq": 3}),
        (0, None, {"before_seq": 0}),
        (0, "x", {"before_seq": 0, "match": "x"}),
        (None, "x", {"match": "x"}),
        (None, None, {}),
    ],
)
def test_a_delete_sends_a_given_0(
    before_seq: int | None, match: str | None, sent: dict[str, Any]
) -> None:
    request = calls.delete("t", before_seq=before_seq, match=match).request
    assert json.loads(request.body or b"") == sent
