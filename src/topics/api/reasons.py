"""The first line of an answer, ready made."""

from http import HTTPStatus

_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


def status_line(status: int) -> bytes:
    return _LINES[status]
