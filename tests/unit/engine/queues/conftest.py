"""Fixtures of the queues' unit tests."""

import pytest
from tests.unit.engine.place import Place


@pytest.fixture
def place() -> Place:
    return Place()
