"""One topic with the type of its payload: the same over the embedded log and over HTTP."""

from topics.handles.async_topic import AsyncTopicHandle
from topics.handles.topic import TopicHandle

__all__ = ["AsyncTopicHandle", "TopicHandle"]
