"""A router for a service: path, parameters, answer and OpenAPI entry follow from the signatures of its methods."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import orjson
from fastapi import Request
from fastapi.responses import Response

from headwater.errors import ArgumentInvalid
from headwater.http.route_table import ServiceRouter
from headwater.log.remote.wire import ARROW, table_to_bytes
from headwater.services.callers import Caller
from headwater.services.host import Host
from headwater.services.json_form import json_schema, to_json
from headwater.services.route import ARROW_PARAMETER, JSON, LOCAL_ONLY, Parameter, Route, Service, Table

S = TypeVar("S", bound=Service)
#: Parameters with which a call may wait: it takes a thread of those for waiting calls.
WAITS = frozenset({"wait_seconds", "at_least"})
#: The status of an answer that no client gets, as servers log it.
CLIENT_CLOSED = 499
_TABLE = {
    JSON: {"schema": {"type": "object"}},
    ARROW: {"schema": {"type": "string", "format": "binary"}},
}


def caller_of(request: Request) -> Caller:
    """The caller that the guard has identified."""
    caller: Caller = request.state.caller
    return caller


def not_audited(request: Request) -> None:
    """Keep the guard from auditing a request: its service does, or it is one of rows, which the log has."""
    request.state.is_audited = True


# Any, here and below: the answer of a method.
async def while_connected(request: Request, call: Coroutine[Any, Any, Any]) -> list[Any]:
    """The answer of a call that waits; nothing if its client has disconnected: then the call is cancelled."""
    answer = asyncio.ensure_future(call)
    left = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({answer, left}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            answer.cancel()
            await asyncio.wait({answer})
        return [] if answer.cancelled() else [answer.result()]
    finally:
        left.cancel()
        answer.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


# Any: arguments of FastAPI's router.
def router(kind: type[Service], host: Host, *, ignore_unknown: bool = False, **settings: Any) -> ServiceRouter:
    """The routes of a service. Paths with fewer parameters come first, so that `/a/list` is not taken for `/a/{name}`."""
    routes = ServiceRouter(tags=[kind.__module__.rpartition(".")[2].replace("_", " ")], **settings)
    served = [item for item in kind.routes().items() if item[1].method != LOCAL_ONLY]
    for name, route in sorted(served, key=lambda item: (item[1].path.count("{"), item[1].path)):
        routes.add_api_route(
            route.path,
            _endpoint(kind, name, route, host, ignore_unknown),
            methods=[route.method],
            name=name,
            description=route.function.__doc__,
            status_code=204 if route.answer is type(None) else route.status,
            response_class=Response,
            responses=_answers(route),
            openapi_extra=_described(route),
        )
    return routes


def service_of(kind: type[S], host: Host, request: Request) -> S:
    """The service for the caller of a request."""
    return kind(host, caller_of(request), address=request.client.host if request.client else "unknown")


def _endpoint(
    kind: type[Service], name: str, route: Route, host: Host, ignore_unknown: bool
) -> Callable[[Request], Any]:
    known = {one.name: one for one in route.parameters}

    async def endpoint(request: Request) -> Response:
        not_audited(request)
        body = await _body(request) if route.has_body else {}
        texts = {**_query(request, known), **{one: request.path_params[one] for one in route.in_path}}
        if ARROW_PARAMETER in known:
            texts[ARROW_PARAMETER] = ARROW in request.headers.get("accept", "")
        if ignore_unknown:
            body, texts = ({one: some[one] for one in some if one in known} for some in (body, texts))
        service, arguments = service_of(kind, host, request), route.arguments(body, texts)
        if route.at_hand:
            found = getattr(service, route.at_hand)(**arguments)
            if found is not None:
                return _response(request, route, found)
        call = functools.partial(getattr(service, route.served_by or name), **arguments)
        if inspect.iscoroutinefunction(call.func):
            answers = await while_connected(request, call())
            return _response(request, route, answers[0]) if answers else Response(status_code=CLIENT_CLOSED)
        waits = any(body.get(one) or texts.get(one) for one in WAITS)
        return await host.run(lambda: _response(request, route, call()), waits=waits)

    return endpoint


# Any: JSON, too.
def _response(request: Request, route: Route, answer: Any) -> Response:
    if route.answer is type(None):
        return Response(status_code=204)
    if isinstance(answer, Table):
        if ARROW in request.headers.get("accept", ""):
            return Response(table_to_bytes(answer.table), media_type=ARROW)
        answer = answer.as_json()
    is_text = isinstance(answer, bytes) or (route.media != JSON and isinstance(answer, str))
    content = answer if is_text else orjson.dumps(to_json(answer))
    return Response(content, status_code=route.status, media_type=route.media)


async def _body(request: Request) -> dict[str, Any]:
    text = await request.body()
    if not text:
        return {}
    try:
        body = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ArgumentInvalid(name="body", value="…", expected=f"JSON, without lone surrogates ({error})") from None
    if not isinstance(body, dict):
        raise ArgumentInvalid(name="body", value=type(body).__name__, expected="a JSON object")
    return body


def _query(request: Request, known: dict[str, Parameter]) -> dict[str, Any]:
    """The query string: a parameter that is a list may be given more than once."""
    texts: dict[str, Any] = {}
    for name in request.query_params:
        values = request.query_params.getlist(name)
        texts[name] = values if name in known and _is_list(known[name]) else values[-1]
    return texts


def _is_list(parameter: Parameter) -> bool:
    schema = json_schema(parameter.kind)
    return any(one.get("type") == "array" for one in (schema, *schema.get("anyOf", ())))


def _answers(route: Route) -> dict[int | str, dict[str, Any]]:
    if route.answer is type(None):
        return {}
    content = _TABLE if route.answer is Table else {route.media: {"schema": json_schema(route.answer)}}
    return {route.status: {"description": "The answer", "content": content}}


def _described(route: Route) -> dict[str, Any]:
    in_path = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in route.in_path]
    others = [one for one in route.parameters if one.name not in (*route.in_path, ARROW_PARAMETER)]
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
