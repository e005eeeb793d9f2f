"""`topics`: a durable log for applications.

Loss is never silent, and what was acknowledged is never lost.

import topics

with topics.open("./topics-data") as log:
    log.create("orders", durability="fsync")
    log.append("orders", [{"data": {"id": 1}, "tag": "customer:7"}])
    page = log.diff("orders", from_seq=0)
"""

from topics.config import ServerConfig
from topics.embedded import Log
from topics.embedded import open_log as open  # noqa: A004 - `topics.open` reads as it should
from topics.errors import TopicsError
from topics.model.append import Appended
from topics.model.delete import Deleted
from topics.model.diff import Page, Record, Tombstone
from topics.model.queues import Acked, Claimed, Extended, Job, Nacked, QueueState
from topics.model.topic_config import TopicConfig
from topics.model.topics import TopicState

__version__ = "0.1.0"

__all__ = [
    "Acked",
    "Appended",
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
    "TopicState",
    "TopicsError",
    "__version__",
    "open",
]
