"""Finds the endpoint of a request in a table, by its method and the segments of its path.

FastAPI tries one route after the other, and those of an included router twice: some 170 of them for a path of ours, which
took longer than many calls take. It keeps all routes for the OpenAPI document, and for requests that are not in the table.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, NoReturn

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Match, NoMatchFound, request_response
from starlette.types import ASGIApp, Receive, Scope, Send


class ServiceRouter(APIRouter):
    """A router whose endpoints take a request and return a response: they need nothing else of FastAPI."""


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """One path: its literal segments and its parameters by their places; without an endpoint, FastAPI has to serve it."""

    literals: tuple[tuple[int, str], ...]
    names: tuple[tuple[int, str], ...]
    endpoint: ASGIApp | None


class RouteTable(BaseRoute):
    """The routes of some routers under a prefix, as one route. As in a router, the first one that matches is taken."""

    def __init__(self, prefix: str, routers: Iterable[APIRouter]) -> None:
        self._prefix = f"{prefix}/"
        self._entries: dict[tuple[str, int, str], list[_Entry]] = {}
        for router in routers:
            for route in router.routes:
                if isinstance(route, APIRoute):
                    is_plain = isinstance(router, ServiceRouter)
                    self._add(route, request_response(route.endpoint) if is_plain else None)

    def _add(self, route: APIRoute, endpoint: ASGIApp | None) -> None:
        segments = route.path.lstrip("/").split("/")
        parts = [(place, text.strip("{}"), text.startswith("{")) for place, text in enumerate(segments)]
        entry = _Entry(
            literals=tuple((place, text) for place, text, is_name in parts if not is_name),
            names=tuple((place, text) for place, text, is_name in parts if is_name),
            endpoint=endpoint,
        )
        for method in route.methods or ():
            self._entries.setdefault((method, len(segments), segments[0]), []).append(entry)

    # Any: the shape of ASGI.
    def matches(self, scope: Scope) -> tuple[Match, MutableMapping[str, Any]]:
        path: str = scope["path"]
        if scope["type"] != "http" or scope.get("root_path") or not path.startswith(self._prefix):
            return Match.NONE, {}
        segments = path[len(self._prefix) :].split("/")
        for entry in self._entries.get((scope["method"], len(segments), segments[0]), ()):
            if all(segments[place] == text for place, text in entry.literals):
                values = {name: segments[place] for place, name in entry.names}
                if entry.endpoint is None or not all(values.values()):
                    break
                return Match.FULL, {"endpoint": entry.endpoint, "path_params": values}
        return Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope["endpoint"](scope, receive, send)

    def url_path_for(self, name: str, /, **path_params: Any) -> NoReturn:
        raise NoMatchFound(name, path_params)
