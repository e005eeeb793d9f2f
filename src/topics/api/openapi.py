"""`GET /openapi.json`: the API in OpenAPI 3.1, made from the map of routes and the models.

It holds no data, so it needs no key. Whether keys are asked for is part of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

from topics import __version__
from topics.api.describe import DESCRIPTIONS, EVENTS, JSON, PARAMETERS, Description
from topics.api.exchange import Exchange
from topics.config import format_bytes
from topics.model.failure import FailureReply

if TYPE_CHECKING:
    from topics.api.app import App
    from topics.api.routes import Route

_REF = "#/components/schemas/{name}"
_ANY_OBJECT: dict[str, object] = {"type": "object"}
_MATCH: dict[str, object] = {
    "description": 'a tag, ["tag","Eq","X"] or ["tag","Glob","X*"]',
    "anyOf": [
        {"type": "string"},
        *(
            {
                "type": "array",
                "prefixItems": [{"const": "tag"}, {"const": op}, literal],
                "items": False,
                "minItems": 3,
            }
            for op, literal in (
                ("Eq", {"type": "string"}),
                ("Glob", {"type": "string", "pattern": r"^[^*]*\*$"}),
            )
        ),
    ],
}


def show(app: "App", exchange: Exchange) -> None:
    exchange.reply(200, msgspec.json.encode(document_of(app)))


def document_of(app: "App") -> dict[str, Any]:
    from topics.api.routes import ROUTES  # noqa: PLC0415 - the map names this handler

    return build_document(ROUTES, has_keys=not app.keyring.is_open)


def build_document(routes: Sequence["Route"], *, has_keys: bool) -> dict[str, Any]:
    described = [(route, _describe(route)) for route in routes]
    models = _Models(description for _, description in described)
    paths: dict[str, dict[str, object]] = {}
    for route, description in described:
        path = "/".join(f"{{{p[1:]}}}" if p[:1] == ":" else p for p in route.path.split("/"))
        operation = _operation(route, description, models, has_keys=has_keys)
        paths.setdefault(path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "topics",
            "version": __version__,
            "description": "A durable log: append, read what you missed, watch, work.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": models.components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


class _Models:
    """The schema of every model, by the model."""

    def __init__(self, descriptions: Iterable[Description]) -> None:
        models: list[Any] = [FailureReply]
        for description in descriptions:
            models += [m for m in (description.takes, description.gives) if m is not None]
        schemas, components = msgspec.json.schema_components(models, ref_template=_REF)
        self._schemas = dict(zip(map(repr, models), schemas, strict=True))
        self.components: dict[str, Any] = _with_match(components) | {"Match": _MATCH}

    def of(self, model: object) -> Mapping[str, Any]:
        return _ANY_OBJECT if model is None else self._schemas[repr(model)]


def _with_match(schema: Any) -> Any:  # noqa: ANN401 - any JSON
    """Put the exact shape of a match where msgspec knows only its types."""
    if isinstance(schema, dict):
        if schema.get("title") == "Match":
            return {"$ref": _REF.format(name="Match")}
        return {name: _with_match(value) for name, value in schema.items()}
    return [_with_match(value) for value in schema] if isinstance(schema, list) else schema


def _describe(route: "Route") -> Description:
    return DESCRIPTIONS.get(route.label) or Description(
        summary=route.label, media=(EVENTS,) if route.is_stream else (JSON,)
    )


def _operation(
    route: "Route", description: Description, models: _Models, *, has_keys: bool
) -> dict[str, object]:
    media = {kind: {"schema": _schema_of(kind, description, models)} for kind in description.media}
    failure = {JSON: {"schema": models.of(FailureReply)}}
    responses: dict[str, object] = {
        str(status): {
            "description": HTTPStatus(status).phrase,
            **({"content": media} if media else {}),
        }
        for status in description.statuses
    }
    for status in _refusals(route, description, has_keys=has_keys):
        phrase = HTTPStatus(status).phrase
        responses[str(status)] = {"description": phrase, "content": failure}
    operation: dict[str, object] = {
        "summary": description.summary,
        "operationId": route.label.replace("/", "_").replace(" ", "").replace(":", ""),
        "parameters": _parameters(route, description),
        "responses": responses,
    }
    if route.scopes:
        operation["description"] = f"Scope: {' and '.join(sorted(route.scopes))}."
    if has_keys and not route.is_open and not route.is_probe:
        operation["security"] = [{"key": []}]
    if route.method in ("POST", "PUT"):
        body = {JSON: {"schema": models.of(description.takes)}}
        operation["requestBody"] = {
            "description": _size_text(route),
            "required": True,
            "content": body,
        }
    return operation


def _size_text(route: "Route") -> str:
    if route.body_bytes is None:
        return "At most as many bytes as `max_body_bytes` says."
    return f"At most {format_bytes(route.body_bytes)}, also unpacked."


def _schema_of(kind: str, description: Description, models: _Models) -> Mapping[str, Any]:
    return models.of(description.gives) if kind == JSON else {"type": "string"}


def _refusals(route: "Route", description: Description, *, has_keys: bool) -> list[int]:
    found = {400, *description.refusals}
    if route.method in ("POST", "PUT"):
        found |= {413, 415}
    if ":" in route.path:
        found.add(404)
    if not route.is_open:
        found |= {429, 500, 503}
        if has_keys:
            found |= {401, 403}
    if route.scopes - {"read"}:
        found.add(507)  # whatever may need room on the disk
    if route.is_stream:
        found |= {401, 406}
    return sorted(found)


def _parameters(route: "Route", description: Description) -> list[dict[str, object]]:
    names = [part[1:] for part in route.path.split("/") if part[:1] == ":"]
    found = [_parameter(name, "path") for name in names]
    found += [_parameter(name, "query") for name in description.query]
    found += [_parameter(name, "header") for name in description.headers]
    return found


def _parameter(name: str, place: str) -> dict[str, object]:
    schema = PARAMETERS.get(name, {"type": "string"})
    return {"name": name, "in": place, "required": place == "path", "schema": schema}
