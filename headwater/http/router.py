"""A router for a service: path, parameters, answer and OpenAPI entry follow from the signatures of its methods."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import anyio.to_thread
import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response

from headwater.errors import ArgumentInvalid
from headwater.services.host import Host, caller_of
from headwater.services.json_form import json_schema, to_json
from headwater.services.route import Parameter, Route, Service

JSON = "application/json"


def router(kind: type[Service], host: Host) -> APIRouter:
    """The routes of a service. Paths with fewer parameters come first, so that `/a/list` is not taken for `/a/{name}`."""
    routes = APIRouter(tags=[kind.__module__.rpartition(".")[2].replace("_", " ")])
    by_path = sorted(kind.routes().items(), key=lambda item: (item[1].path.count("{"), item[1].path))
    for name, route in by_path:
        routes.add_api_route(
            route.path,
            _endpoint(kind, name, route, host),
            methods=[route.method],
            name=name,
            description=route.function.__doc__,
            status_code=204 if route.answer is type(None) else route.status,
            response_class=Response,
            responses=_answers(route),
            openapi_extra=_described(route),
        )
    return routes


def _endpoint(kind: type[Service], name: str, route: Route, host: Host) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        request.state.is_audited = True  # by the service
        body = await _body(request) if route.has_body else {}
        texts = {**_query(request, route), **{one: request.path_params[one] for one in route.in_path}}
        arguments = route.arguments(body, texts)
        address = request.client.host if request.client else "unknown"
        service = kind(host, caller_of(request), address=address)
        limiter = host.limiter
        answer = await anyio.to_thread.run_sync(functools.partial(getattr(service, name), **arguments), limiter=limiter)
        if route.answer is type(None):
            return Response(status_code=204)
        if route.media != JSON:
            return Response(answer, status_code=route.status, media_type=route.media)
        content = await anyio.to_thread.run_sync(lambda: orjson.dumps(to_json(answer)), limiter=limiter)
        return Response(content, status_code=route.status, media_type=JSON)

    return endpoint


# Any: JSON; here and below.
async def _body(request: Request) -> dict[str, Any]:
    text = await request.body()
    if not text:
        return {}
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ArgumentInvalid(name="body", value="…", expected=f"JSON, without lone surrogates ({error})") from None
    if not isinstance(found, dict):
        raise ArgumentInvalid(name="body", value=type(found).__name__, expected="a JSON object")
    return found


def _query(request: Request, route: Route) -> dict[str, Any]:
    """The query string: a parameter that is a list may be given more than once."""
    if route.has_body:
        return {}
    known = {one.name: one for one in route.parameters}
    found: dict[str, Any] = {}
    for name in request.query_params:
        values = request.query_params.getlist(name)
        found[name] = values if name in known and _is_list(known[name]) else values[-1]
    return found


def _is_list(parameter: Parameter) -> bool:
    schema = json_schema(parameter.kind)
    return any(one.get("type") == "array" for one in (schema, *schema.get("anyOf", ())))


def _answers(route: Route) -> dict[int | str, dict[str, Any]]:
    if route.answer is type(None):
        return {}
    return {
        route.status: {"description": "The answer", "content": {route.media: {"schema": json_schema(route.answer)}}}
    }


def _described(route: Route) -> dict[str, Any]:
    in_path = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in route.in_path]
    others = [one for one in route.parameters if one.name not in route.in_path]
    if not route.has_body:
        given = [
            {"name": one.name, "in": "query", "required": one.is_required, "schema": json_schema(one.kind)}
            for one in others
        ]
        return {"parameters": [*in_path, *given]}
    schema = {
        "type": "object",
        "properties": {one.name: json_schema(one.kind) for one in others},
        "required": [one.name for one in others if one.is_required],
        "additionalProperties": False,
    }
    body = {"required": bool(schema["required"]), "content": {JSON: {"schema": schema}}}
    return {"parameters": in_path, **({"requestBody": body} if others else {})}
