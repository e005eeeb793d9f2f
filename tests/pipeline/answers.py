"""A server that a test makes up: every request is answered by a function."""

import json
from collections.abc import Callable

from topics.client.request import Request, Response

Answer = Callable[[Request], Response]


class Answers:
    """Stands where connections to a server would."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def send(self, request: Request, timeout_s: float) -> Response:  # noqa: ARG002 - answers come at once
        return self._answer(request)

    def close(self) -> None:
        """Nothing is open."""


def reply(body: object, *, status: int = 200) -> Response:
    return Response(status=status, retry_after_s=None, body=json.dumps(body).encode())


def refusal(status: int, code: str, said: str = "no", **detail: object) -> Response:
    error = {"code": code, "message": said, "detail": detail}
    return reply({"error": error}, status=status)
