"""The document: every route, every reference whole, nothing that a page could be tricked with."""

import re
from typing import Any

import pytest
from tests.unit.api.conftest import MakeApp

from topics.api.describe import DESCRIPTIONS
from topics.api.docs_page import render
from topics.api.openapi import build_document, document_of
from topics.api.routes import ROUTES


@pytest.fixture
def document(make_app: MakeApp) -> dict[str, Any]:
    return document_of(make_app(keys="k"))


def references(value: object) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if "$ref" in value else set()
        return own.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


def test_every_route_is_described() -> None:
    assert {route.label for route in ROUTES} - set(DESCRIPTIONS) == set()


def test_every_route_is_in_the_document(document: dict[str, Any]) -> None:
    named = {
        f"{method.upper()} " + re.sub(r"{(.*?)}", r":\1", path)
        for path, methods in document["paths"].items()
        for method in methods
    }
    assert named == {route.label for route in ROUTES}


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    schemas = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert references(document) <= schemas


def test_operations_have_their_own_ids(document: dict[str, Any]) -> None:
    ids = [op["operationId"] for methods in document["paths"].values() for op in methods.values()]
    assert len(ids) == len(set(ids))


def test_keys_are_asked_for_where_there_are_any(document: dict[str, Any]) -> None:
    append = document["paths"]["/v0/topics/{topic}"]["post"]
    assert append["security"] == [{"key": []}]
    assert {"401", "403"} <= set(append["responses"])
    assert "security" not in document["paths"]["/v0/health"]["get"]
    open_one = build_document(ROUTES, has_keys=False)["paths"]["/v0/topics/{topic}"]["post"]
    assert "security" not in open_one
    assert "401" not in open_one["responses"]


def test_a_full_disk_is_told_of_by_whatever_needs_room(document: dict[str, Any]) -> None:
    told = {
        f"{method} {path}"
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if "507" in operation["responses"]
    }
    assert {
        "post /v0/topics/{topic}",
        "put /v0/routers/{router}",
        "post /v0/groups/{group}/commit",
        "post /v0/backups/{backup}",
    } <= told
    assert not told & {"get /v0/topics", "post /v0/topics/{topic}/diff", "get /v0/health"}


def test_a_match_is_described_exactly(document: dict[str, Any]) -> None:
    diff = document["components"]["schemas"]["DiffBody"]["properties"]["match"]
    assert {"$ref": "#/components/schemas/Match"} in diff["anyOf"]


def test_the_page_loads_nothing_and_escapes_everything(document: dict[str, Any]) -> None:
    document["info"]["title"] = "<script>alert(1)</script>"
    document["paths"]["/<b>"] = document["paths"]["/v0/health"]
    page = render(document)
    assert "<script" not in page
    assert "<b>" not in page.replace("<b>GET", "").replace("<b>POST", "").replace(
        "<b>PUT", "").replace("<b>DELETE", "")  # fmt: skip
    assert re.findall(r'(?:src|href)="([^"]*)"', page) == ["/openapi.json"]
