"""Which twin `topics.kernel` takes, and that both offer the same."""

import inspect
import subprocess
import sys
from importlib.util import find_spec
from types import ModuleType

import pytest

from topics import kernel
from topics.kernel import pure

CHOICE = "import topics.kernel; print(topics.kernel.IMPLEMENTATION)"
WITHOUT_NATIVE = "import sys; sys.modules['topics.kernel._native'] = None; " + CHOICE
native_is_built = find_spec("topics.kernel._native") is not None


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    source = kernel.__file__.removesuffix("/topics/kernel/__init__.py")
    environment = {"PYTHONPATH": ":".join([source, *sys.path]), **environment}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )


def test_the_environment_asks_for_the_pure_twin_without_a_warning() -> None:
    done = run_python(CHOICE, TOPICS_PURE_PYTHON="1", PYTHONWARNINGS="error")
    assert done.stdout == "pure\n"


@pytest.mark.skipif(not native_is_built, reason="the native twin is not built")
def test_the_native_twin_is_taken_where_it_was_built() -> None:
    done = run_python(CHOICE, PYTHONWARNINGS="error")
    assert done.stdout == "native\n"


def test_without_the_extension_the_pure_twin_takes_over_with_a_warning() -> None:
    done = run_python(WITHOUT_NATIVE)
    assert done.stdout == "pure\n"
    assert "RuntimeWarning: topics.kernel runs in plain Python" in done.stderr


def test_a_twin_offers_every_function_of_the_kernel(twin: ModuleType) -> None:
    offered = set(pure.__all__)
    odd = {name for name in offered if not inspect.isroutine(getattr(pure, name))}
    assert odd == {"Gathering", "Intake"}
    assert {name for name in offered if not callable(getattr(twin, name, None))} == set()
    assert offered < set(kernel.__all__)


def methods(owner: type) -> set[str]:
    return {name for name, found in inspect.getmembers(owner, callable) if name[0] != "_"}


def test_a_class_of_the_kernel_has_the_same_methods_in_each_twin(twin: ModuleType) -> None:
    kept_to_itself = {"Gathering": {"add_small", "has_room"}, "Intake": set()}
    for name, inner in kept_to_itself.items():
        offered = methods(getattr(pure, name))
        assert inner < offered
        assert methods(getattr(twin, name)) - inner == offered - inner
