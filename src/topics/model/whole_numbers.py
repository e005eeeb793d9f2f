"""Numbers with nothing behind the point."""

from typing import Any


def with_whole_numbers(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return JSON with every 5.0 as 5."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {name: with_whole_numbers(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [with_whole_numbers(inner) for inner in value]
    return value
