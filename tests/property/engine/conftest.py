"""Have failures of the shared driver explained like those of a test."""

import pytest

pytest.register_assert_rewrite("tests.property.engine.side_by_side")
