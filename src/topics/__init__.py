"""`topics`: a durable log for applications.

Loss is never silent, and what was acknowledged is never lost.

import topics

with topics.open("./topics-data") as log:
    log.create("orders", durability="fsync")
    log.append("orders", [{"data": {"id": 1}, "tag": "customer:7"}])
    page = log.diff("orders", from_seq=0)
"""

from importlib import import_module
from typing import TYPE_CHECKING

from topics.config import ServerConfig
from topics.errors import TopicsError
from topics.model.append import Appended
from topics.model.delete import Deleted
from topics.model.diff import Page, Record, Tombstone
from topics.model.queues import Acked, Claimed, Extended, Job, Nacked, QueueState
from topics.model.stream import CaughtUp, TopicDeleted, TypedRecord
from topics.model.topic_config import TopicConfig
from topics.model.topics import TopicState

if TYPE_CHECKING:
    from topics.client import AsyncTopics, Topics
    from topics.embedded import Log
    from topics.embedded import open_log as open  # noqa: A004 - `topics.open` reads as it should

__version__ = "0.1.0"

__all__ = [
    "Acked",
    "Appended",
    "AsyncTopics",
    "CaughtUp",
    "Claimed",
    "Deleted",
    "Extended",
    "Job",
    "Log",
    "Nacked",
    "Page",
    "QueueState",
    "Record",
    "ServerConfig",
    "Tombstone",
    "TopicConfig",
    "TopicDeleted",
    "TopicState",
    "Topics",
    "TopicsError",
    "TypedRecord",
    "__version__",
    "open",
]

_FACES = {
    "AsyncTopics": ("topics.client", "AsyncTopics"),
    "Log": ("topics.embedded", "Log"),
    "Topics": ("topics.client", "Topics"),
    "open": ("topics.embedded", "open_log"),
}


def __getattr__(name: str) -> object:
    """Import a face when it is asked for: a client does without the engine, a log without h11."""
    if name not in _FACES:
        raise AttributeError(f"module 'topics' has no attribute {name!r}")
    module, attribute = _FACES[name]
    face = getattr(import_module(module), attribute)
    globals()[name] = face
    return face
