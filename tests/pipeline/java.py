"""For tests that start a Spark of their own; those with the session of all need no mark."""

import shutil

import pytest

needs_java = pytest.mark.skipif(
    shutil.which("java") is None, reason="there is no Java on this machine, which Spark needs"
)
