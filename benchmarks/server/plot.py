"""The plot: horizontal bars, one group a comparison, as SVG written by hand."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from benchmarks.server.table import rate

WIDTH = 760
LABEL_WIDTH = 170
BAR_WIDTH = WIDTH - LABEL_WIDTH - 110
BAR_HEIGHT = 18
LINE_HEIGHT = 24
OURS, OTHERS = "#2563eb", "#9ca3af"


class Group(NamedTuple):
    """One comparison: a title, and a rate for each name."""

    title: str
    rates: Sequence[tuple[str, float]]


def draw(groups: Sequence[Group]) -> str:
    """Return the SVG; every group has its own scale, and the bars of `topics` their own colour."""
    parts: list[str] = []
    top = 8
    for group in groups:
        parts.append(_text(8, top + 16, group.title, weight="bold"))
        top += LINE_HEIGHT
        longest = max(value for _, value in group.rates)
        for name, value in sorted(group.rates, key=lambda pair: -pair[1]):
            parts += _bar(top, name, value, value / longest)
            top += LINE_HEIGHT
        top += LINE_HEIGHT // 2
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" '
        f'font-family="sans-serif" font-size="13">\n'
        f'<rect width="{WIDTH}" height="{top}" fill="white"/>\n{body}\n</svg>\n'
    )


def _bar(top: int, name: str, value: float, share: float) -> list[str]:
    width = max(1, round(BAR_WIDTH * share))
    colour = OURS if name.startswith("topics") else OTHERS
    return [
        _text(LABEL_WIDTH - 8, top + 14, name, anchor="end"),
        f'<rect x="{LABEL_WIDTH}" y="{top}" width="{width}" height="{BAR_HEIGHT}" '
        f'fill="{colour}"/>',
        _text(LABEL_WIDTH + width + 6, top + 14, rate(value)),
    ]


def _text(x: int, y: int, content: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}">'
        f"{escape(content)}</text>"
    )
