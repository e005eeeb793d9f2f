"""A topic that is not there yet: whoever works on it waits, and says so once."""

import logging

from msgspec import Struct

from topics.errors import TopicNotFound

LOOK_S = 0.5
"""How long between two looks whether it is there now."""


class Pause(Struct, frozen=True):
    """What a reader without I/O asks for: go on after so many seconds."""

    seconds: float


class Absence:
    """What was said of the topics that somebody waits for."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._said: set[str] = set()

    def say(self, missing: TopicNotFound) -> None:
        if missing.topic not in self._said:
            self._said.add(missing.topic)
            self._logger.warning("the topic %s is not there yet: waiting for it", missing.topic)
