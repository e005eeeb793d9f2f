"""Every unit test of the kernel runs in both twins; the native one is skipped if not built."""

from types import ModuleType

import pytest

from topics.kernel import pure


@pytest.fixture(params=["pure", "native"])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "pure":
        return pure
    native: ModuleType = pytest.importorskip("topics.kernel._native", exc_type=ImportError)
    return native
