"""The client of a server: `Topics` blocks, `AsyncTopics` is awaited; the same names, one core.

Imports neither the engine nor the server. Reference: docs/reference/client.md.
"""

from topics.client.aio import AsyncTopics
from topics.client.client import Topics

__all__ = ["AsyncTopics", "Topics"]
