"""Spark: topics as a source and a sink, `format("topics")`.

`register(spark)` makes the format known to a session; `build_session()` makes a session that is
set up for it. Everything that needs no Spark imports none. Reference: docs/reference/spark.md.
"""

from topics.pipeline.session import build_session, register

__all__ = ["build_session", "register"]
