"""What the writers of one turn are told."""

from collections.abc import Iterable

from topics.kernel.layout import U64_MAX


def format_answers(
    writers: Iterable[tuple[int, object]],
    *,
    first_seq: int,
    start: bytes,
    middle: bytes,
    end: bytes,
) -> list[bytes]:
    """Return the JSON answer to each write: how many records it has says which seqs it got.

    `start` goes before its first seq, `middle` before its count, `end` behind that.
    """
    answers = []
    for count, _ in writers:
        last_seq = first_seq + count - 1
        if count < 1:
            raise ValueError("a write has at least one record")
        if last_seq > U64_MAX:
            raise OverflowError("a seq is a u64")
        seqs = b",".join([b"%d" % seq for seq in range(first_seq, last_seq + 1)])
        answers.append(
            b'%b%d,"last_seq":%d,"seqs":[%b]%b%d%b'
            % (start, first_seq, last_seq, seqs, middle, count, end)
        )
        first_seq = last_seq + 1
    return answers
