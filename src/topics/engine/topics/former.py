"""What is known of topics that are gone: how far the earlier lives of a name may have come.

A cursor beyond the head is of an earlier life, or of none: a typing error, or records that a crash
took. Keeps: no seq that an earlier life handed out is above what `of` says; what is not known for
sure counts as all seqs there are.
"""

from collections.abc import Mapping
from itertools import islice

from topics.model.diff import MAX_SEQ

NAMES_MAX = 10_000
"""Of names that were deleted before the last so many only the highest seq of all is kept."""
FOLDED_NAMES = 1_000
"""So many are folded together at a time."""


class FormerLives:
    """The highest seqs by name. Owned by the registry, whose lock guards changes alone."""

    def __init__(self, seqs: Mapping[str, int] | None = None, *, rest: int = 0) -> None:
        self._seqs = dict(seqs or {})
        self.rest = rest

    @property
    def seqs(self) -> dict[str, int]:
        """Return a copy; `rest` is to be read after it, as a name moves from here to there."""
        return dict(self._seqs)

    def of(self, name: str) -> int:
        return self._seqs.get(name, self.rest)

    def note(self, name: str, seq: int = MAX_SEQ) -> None:
        """Note that a life of this name ends, or has ended nobody knows how far on."""
        self._seqs[name] = max(seq, self.of(name))
        if len(self._seqs) > NAMES_MAX:
            oldest = list(islice(self._seqs, FOLDED_NAMES))
            self.rest = max(self.rest, *(self._seqs[other] for other in oldest))
            for other in oldest:
                del self._seqs[other]
