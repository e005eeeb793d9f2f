"""Progress to the topic `topics.pipeline`, where the console and everybody else can read it."""

import logging

import msgspec

from topics.errors import TopicsError
from topics.pipeline.jobs.job import PIPELINE_TOPIC, Progress
from topics.pipeline.options import Token
from topics.pipeline.server import Server

PATIENCE_S = 2.0
"""How long a job waits for a server that does not take its progress."""
_log = logging.getLogger("topics.pipeline")


class TopicListener:
    """Writes each progress as a record; a server that is away costs a warning, once, no more."""

    def __init__(
        self, url: str, token: Token | None = None, *, patience_s: float = PATIENCE_S
    ) -> None:
        self._server = Server(url, token, patience_s=patience_s)
        self._away = False
        self._told = 0

    def __call__(self, progress: Progress) -> None:
        if self._away and progress.state == "running":
            return
        self._told += 1
        body = {
            "records": [{"data": progress, "tag": progress.job}],
            "producer_id": f"pipeline/{progress.run}",  # a repeat after a lost answer is harmless
            "producer_seq": self._told,
        }
        try:
            self._server.append(PIPELINE_TOPIC, msgspec.json.encode(body))
            self._away = False
        except TopicsError as error:
            if not self._away:
                _log.warning("topics: progress is not written to %s: %s", PIPELINE_TOPIC, error)
            self._away = True

    def close(self) -> None:
        self._server.close()
