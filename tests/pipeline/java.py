"""For tests that start a Spark of their own; those with the session of all need no mark."""

import importlib.util
import shutil

import pytest

needs_java = pytest.mark.skipif(
    shutil.which("java") is None or importlib.util.find_spec("pyspark") is None,
    reason="Spark is not here: it needs Java, and pip install topics-log[spark]",
)
