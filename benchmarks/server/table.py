"""The table: ratios against aims, and whether they are reached."""

from collections.abc import Sequence
from typing import NamedTuple

HEAD = "| what | topics | beside | ratio | aim | reached |\n|---|---|---|---|---|---|"


class Row(NamedTuple):
    """One figure. `reached` is None for what is only reported or could not be measured."""

    what: str
    ours: str
    beside: str = ""
    ratio: str = ""
    aim: str = "reported"
    reached: bool | None = None


def ratio_row(what: str, *, ours: float, other: float, other_name: str, least: float | None) -> Row:
    """Return a row about two rates; with `least`, ours should be so many times the other."""
    ratio = ours / other
    return Row(
        what,
        rate(ours),
        f"{other_name}: {rate(other)}",
        times(ratio),
        "reported" if least is None else f"≥ {least:g} ×",
        None if least is None else ratio >= least,
    )


def latency_row(what: str, *, p50_us: float, p99_us: float, beside: str, most_ms: float) -> Row:
    return Row(
        what,
        f"p50 {milliseconds(p50_us)}, p99 {milliseconds(p99_us)}",
        beside,
        "",
        f"p50 ≤ {most_ms:g} ms",
        p50_us <= most_ms * 1000,
    )


def absent_row(what: str, other_name: str, reason: str) -> Row:
    return Row(what, "", f"{other_name}: not measured, {reason}", "", "–")


def failed_row(what: str, reason: str) -> Row:
    """Return the row of a part that did not run to its end: its aims are not reached."""
    return Row(what, f"not measured: {reason}", reached=False)


def rate(per_second: float) -> str:
    if per_second >= 1e6:
        return f"{per_second / 1e6:.2f} M/s"
    return f"{per_second / 1e3:.1f} k/s" if per_second >= 1e3 else f"{per_second:.0f} /s"


def times(ratio: float) -> str:
    return f"{ratio:.2f} ×" if ratio < 10 else f"{ratio:.0f} ×"


def milliseconds(us: float) -> str:
    return f"{us / 1000:.2f} ms"


def render(rows: Sequence[Row]) -> str:
    verdicts = {True: "yes", False: "**no**", None: "–"}
    lines = [
        "| " + " | ".join(_cell(cell) for cell in row[:5]) + f" | {verdicts[row.reached]} |"
        for row in rows
    ]
    return "\n".join([HEAD, *lines])


def all_reached(rows: Sequence[Row]) -> bool:
    return all(row.reached is not False for row in rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
