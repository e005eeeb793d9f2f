"""What the conformance tests share: clients, and the shape of every answer."""

import itertools
from typing import Any

import httpx

CLASSES = ("ephemeral", "memory", "disk", "fsync")
TRANSPORTS = ("http1", "h2c")
DEADLINE_S = 10.0

Reply = dict[str, Any]

_numbers = itertools.count(1)


def fresh(word: str = "t") -> str:
    """Return a name that no other test of this server has used."""
    return f"{word}-{next(_numbers)}"


def open_client(url: str, *, transport: str = "http1", key: str | None = None) -> httpx.Client:
    return httpx.Client(
        base_url=url,
        http1=transport == "http1",
        http2=transport == "h2c",
        headers={"Authorization": f"Bearer {key}"} if key else {},
        timeout=DEADLINE_S,
        trust_env=False,
    )


def ok(response: httpx.Response, status: int = 200) -> Reply:
    """Return the body of a success, after checking what holds for each of them."""
    assert response.status_code == status, f"{response.status_code}: {response.text[:500]}"
    assert response.headers["content-type"].partition(";")[0] == "application/json"
    body: Reply = response.json()
    assert "error" not in body
    assert body["performance"]["server_total_ms"] >= 0
    return body


def refused(response: httpx.Response, status: int, code: str) -> Reply:
    """Return the `detail` of a failure, after checking what holds for each of them."""
    assert response.status_code == status, f"{response.status_code}: {response.text[:500]}"
    assert response.headers["content-type"].partition(";")[0] == "application/json"
    body: Reply = response.json()
    error: Reply = body["error"]
    assert error["code"] == code, error
    assert isinstance(error["message"], str)
    assert error["message"]
    assert set(error) <= {"code", "message", "detail"}
    if status in {429, 503}:
        assert int(response.headers["retry-after"]) >= 0
    detail: Reply = error.get("detail", {})
    return detail


class Api:
    """The routes by their names; every method returns the plain response."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def get(self, path: str, **parameters: object) -> httpx.Response:
        return self.client.get(f"/v0/{path}", params=_text(parameters))

    def put(self, path: str, body: object = None) -> httpx.Response:
        return self.client.put(f"/v0/{path}", json={} if body is None else body)

    def post(self, path: str, body: object = None, **parameters: object) -> httpx.Response:
        return self.client.post(
            f"/v0/{path}", json={} if body is None else body, params=_text(parameters)
        )

    def delete(self, path: str, **parameters: object) -> httpx.Response:
        return self.client.delete(f"/v0/{path}", params=_text(parameters))

    def create(self, topic: str, **config: object) -> Reply:
        return ok(self.put(f"topics/{topic}", config), 201)

    def append(self, topic: str, *data: object, **fields: object) -> Reply:
        """Append one record for each value; the topic may be new."""
        response = self.post(f"topics/{topic}", {"records": [{"data": d} for d in data], **fields})
        return ok(response, response.status_code if response.status_code == 201 else 200)

    def append_records(self, topic: str, records: list[Reply], **fields: object) -> Reply:
        response = self.post(f"topics/{topic}", {"records": records, **fields})
        return ok(response, response.status_code if response.status_code == 201 else 200)

    def diff(self, topic: str, **fields: object) -> Reply:
        return ok(self.post(f"topics/{topic}/diff", fields))

    def data(self, topic: str, **fields: object) -> list[object]:
        return [record["data"] for record in self.diff(topic, limit=1000, **fields)["records"]]

    def state(self, topic: str) -> Reply:
        return ok(self.get(f"topics/{topic}"))

    def raw(
        self, method: str, path: str, body: bytes, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """Send these very bytes."""
        given = {"Content-Type": "application/json"} if headers is None else headers
        return self.client.request(method, f"/v0/{path}", content=body, headers=given)


def _text(parameters: dict[str, object]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in parameters.items()
    }


def seqs(page: Reply) -> list[int]:
    return [record["$seq"] for record in page["records"]]
