"""What is built on the calls of a log: the same over the embedded log and over HTTP."""

from topics.handles.async_topic import AsyncTopicHandle
from topics.handles.topic import TopicHandle

__all__ = ["AsyncTopicHandle", "TopicHandle"]
