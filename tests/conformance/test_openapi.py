"""The OpenAPI document: it is there, it is whole, and the server does what it says."""

from typing import Any

import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from tests.conformance.api import Api, fresh

from topics.testing.server_process import ServerProcess

STREAMS = r"^/v0/(watch/|ws|topics/[^/]+/work)"
EXAMPLES = 20
DEADLINE_S = 20.0
PATHS = {
    "/v0/topics",
    "/v0/topics/{topic}",
    "/v0/topics/{topic}/diff",
    "/v0/topics/{topic}/delete",
    "/v0/topics/{topic}/claim",
    "/v0/topics/{topic}/ack",
    "/v0/topics/{topic}/nack",
    "/v0/topics/{topic}/extend",
    "/v0/topics/{topic}/work",
    "/v0/topics/{topic}/segments",
    "/v0/topics/{topic}/range",
    "/v0/topics/{topic}/compact",
    "/v0/pins/{pin}",
    "/v0/uploads",
    "/v0/uploads/{upload}",
    "/v0/uploads/{upload}/attach",
    "/v0/routers",
    "/v0/routers/{router}",
    "/v0/groups",
    "/v0/groups/{group}",
    "/v0/groups/{group}/join",
    "/v0/groups/{group}/heartbeat",
    "/v0/groups/{group}/leave",
    "/v0/groups/{group}/commit",
    "/v0/groups/{group}/poll",
    "/v0/groups/{group}/seek",
    "/v0/topics/{topic}/redrive",
    "/v0/watch",
    "/v0/watch/{wid}",
    "/v0/health",
    "/v0/ready",
    "/v0/metrics",
    "/v0/tickets",
}


def test_the_document_names_every_route(api: Api) -> None:
    response = api.client.get("/openapi.json")
    assert response.status_code == 200
    document = response.json()
    assert document["openapi"].startswith("3.1")
    assert set(document["paths"]) >= PATHS
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method != "parameters":
                assert operation["responses"], (method, path)


def test_the_page_needs_no_network(api: Api) -> None:
    response = api.client.get("/docs")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    for attribute in ("src", "href"):
        assert f'{attribute}="http' not in response.text
        assert f'{attribute}="//' not in response.text


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"before_seq": 0}, 200),
        ({"before_seq": 0, "match": "x"}, 200),
        ({"before_seq": None, "match": "x"}, 200),
        ({"match": "x"}, 200),
        ({}, 400),
        ({"before_seq": None}, 400),
        ({"before_seq": -1}, 400),
        ({"before_seq": -1, "match": "x"}, 400),
    ],
)
def test_a_delete_is_described_as_it_is_taken(api: Api, body: dict[str, Any], status: int) -> None:
    topic = fresh()
    api.append(topic, 1)
    document = api.client.get("/openapi.json").json()
    takes = document["paths"]["/v0/topics/{topic}/delete"]["post"]["requestBody"]
    schema = takes["content"]["application/json"]["schema"] | {"components": document["components"]}
    fits = jsonschema_rs.Draft202012Validator(schema).is_valid(body)
    answer = api.post(f"topics/{topic}/delete", body)
    assert (fits, answer.status_code) == (status == 200, status)


def is_beyond_a_schema(case: "schemathesis.Case[Any]") -> bool:
    """Tell of what is refused and no schema can say.

    Equal names, lists of unequal length, times in the wrong order.
    """
    body = case.body if isinstance(case.body, dict) else {}
    lists = [found for name in ("seqs", "lease_ids") if isinstance(found := body.get(name), list)]
    own = (case.path_parameters or {}).get("topic", body.get("topic"))
    same_ends = "source" in body and body["source"] == body.get("dest")
    inner = body.get("config")
    config = inner if isinstance(inner, dict) else body
    own_letters = own is not None and config.get("dead_letter") == own
    topics = body.get("topics")
    starts = list(topics.values()) if isinstance(topics, dict) else []
    turned = any(map(is_turned, [body, *starts]))
    unequal = len({len(found) for found in lists}) > 1
    return same_ends or own_letters or turned or unequal or is_beyond_a_head(body)


def is_beyond_a_head(body: dict[str, Any]) -> bool:
    """Tell of places in topics that may not reach so far, and of half of a pair."""
    pair = (body.get("member"), body.get("generation"))
    offsets, to = body.get("offsets"), body.get("to")
    by_operator = bool(offsets) and body.get("member") is None
    half = "offsets" in body and pair.count(None) == 1
    place = isinstance(to, dict) and (to.get("seq") is not None or to.get("ts") is None)
    return by_operator or half or place or bool(body.get("topics") and "to" in body)


def is_turned(window: object) -> bool:
    """Tell whether a window ends before it begins."""
    found = window if isinstance(window, dict) else {}
    times = found.get("from_ts", 0), found.get("until_ts", 0)
    return all(isinstance(ts, int | float) for ts in times) and 0 < times[1] < times[0]


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_answer_fits_the_document(server: ServerProcess, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    asked = 0
    for found in schema.exclude(path_regex=STREAMS).get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()

        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: "schemathesis.Case[Any]") -> None:
            assume(not is_beyond_a_schema(case))
            case.call_and_validate(timeout=DEADLINE_S)

        if mode is GenerationMode.NEGATIVE and not operation.body and not operation.query:
            continue  # nothing in it can be wrong
        ask()
        asked += 1
    assert asked > 5
