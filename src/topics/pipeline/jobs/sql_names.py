"""The names in a query: which topic or table of the lake each of them means. Pure.

A topic has its own name, a table of the lake `lake_` in front; what is not a letter, a digit or a
`_` may be written as `_`.
Keeps: a name means one thing, or nothing and is explained. Full names, `topic/NAME` and
`lake/TABLE`, never meet: no topic has a `/` in its name. Reference: docs/reference/pipeline.md.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, NamedTuple

_NAME: Final = re.compile(r"`([^`]+)`|([A-Za-z_][A-Za-z0-9_]*)")


class Named(NamedTuple):
    """A topic, or a table of the lake."""

    kind: Literal["topic", "lake"]
    name: str

    @property
    def full_name(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def short_name(self) -> str:
        return self.name if self.kind == "topic" else f"lake_{self.name.removeprefix('_')}"


def find(word: str, known: Sequence[Named]) -> list[Named]:
    """Return what a word of a query may mean. Pure.

    The full name wins, then the tables that every lake has, then the name as it is, then with `_`.
    """
    ways: list[Callable[[Named], bool]] = [
        lambda one: one.full_name == word,
        lambda one: one.name.startswith("_") and one.short_name == word,
        lambda one: one.short_name == word,
        lambda one: view_name(one.short_name) == word,
    ]
    found = ([one for one in known if is_meant(one)] for is_meant in ways)
    return next(filter(None, found), [])


def find_all(
    words: Iterable[str], known: Sequence[Named]
) -> tuple[dict[str, Named], dict[str, str]]:
    """Return what words mean, and of those that mean more than one thing, what to write instead.

    Many words of a query are no tables: only one that turns out to be wanted is refused.
    """
    meant = {word: found for word in sorted(words) if (found := find(word, known))}
    cases: dict[str, set[Named]] = {}
    for word, found in meant.items():
        cases.setdefault(word.lower(), set()).update(found)
    unclear = {
        word: _either(word, cases[word.lower()]) for word in meant if len(cases[word.lower()]) > 1
    }
    return {word: found[0] for word, found in meant.items() if word not in unclear}, unclear


def _either(word: str, meanings: Iterable[Named]) -> str:
    names = " or ".join(sorted(f"`{one.full_name}`" for one in meanings))
    return f"{word} may be {names}: write one; names that differ in case alone need a query each"


def names_in(query: str) -> set[str]:
    """Return all words of a query that may be names."""
    return {quoted or word for quoted, word in _NAME.findall(query)}


def view_name(name: str) -> str:
    """Return a name as SQL takes it without quotes."""
    return re.sub(r"\W", "_", name)
