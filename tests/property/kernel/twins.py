"""Run a kernel function in every twin that is there, and see that they agree."""

from copy import deepcopy
from importlib import import_module
from types import ModuleType
from typing import Any

from topics.errors import TopicsError
from topics.kernel import pure


def load_twins() -> list[ModuleType]:
    """Return the pure twin, and the native one if it was built."""
    try:
        return [pure, import_module("topics.kernel._native")]
    except ImportError:
        return [pure]


TWINS = load_twins()


def outcome(twin: ModuleType, name: str, *args: Any, **named: Any) -> Any:  # noqa: ANN401
    """Return what the call returns, or the class and text of what it raises."""
    try:
        return getattr(twin, name)(*args, **named)
    except (TopicsError, ValueError, OverflowError) as error:
        return type(error), str(error)


def agreed(name: str, *args: Any, **named: Any) -> Any:  # noqa: ANN401
    """Return the outcome that all twins share; each gets its own copy of what it may change."""
    first, *others = [outcome(twin, name, *deepcopy(args), **deepcopy(named)) for twin in TWINS]
    for other in others:
        assert other == first
        assert type(other) is type(first)
    return first


def is_refused(result: object) -> bool:
    return isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], type)
