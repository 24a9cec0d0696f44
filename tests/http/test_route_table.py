"""The table of routes: it finds what FastAPI would find, and leaves to it what it does not know."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from starlette.routing import Match

from headwater.config import Config
from headwater.http import application
from headwater.http.route_table import RouteTable, ServiceRouter
from headwater.log import open as open_log


def found(table: RouteTable, method: str, path: str, **scope: Any) -> dict[str, Any] | None:
    """The parameters in the path of a request; None if the table leaves it to FastAPI."""
    match, child = table.matches({"type": "http", "method": method, "path": path, **scope})
    return dict(child["path_params"]) if match is Match.FULL else None


def test_the_table_has_every_route_of_a_service(tmp_path: Path) -> None:
    with open_log(tmp_path / "log", config=Config(maintenance="manual")) as log:
        app = application(log, confined=False)
    table = app.router.routes[0]
    assert isinstance(table, RouteTable)
    missing = []
    for path, methods in app.openapi()["paths"].items():
        values = {name: f"a-{name}" for name in re.findall(r"{(\w+)}", path)}
        for method in methods:
            if found(table, method.upper(), path.format(**values)) != values:
                missing.append(f"{method} {path}")
    by_hand = re.compile(
        r"get /(livez|readyz|metrics)|\w+ /(subjects|schemas|config|mode|compatibility)\b.*|\w+ /$"
        r"|\w+ /api/v1/(problems/{name}|topics/{topic}/(rows|receipts|tail|partitions/{partition}/rows)"
        r"|views/{view}/subscribe|staged/.*/rows/{topic}|transactions/.*/rows/{topic})"
    )
    assert [one for one in missing if not by_hand.fullmatch(one)] == []
    assert found(table, "GET", "/api/v1/views/a/get") is None, "FastAPI says which methods are allowed"


async def nothing() -> Response:
    return Response()


def test_the_first_route_that_matches_is_taken() -> None:
    by_hand, service = APIRouter(), ServiceRouter()
    by_hand.add_api_route("/a/list", nothing, methods=["GET"])
    service.add_api_route("/a/{name}", nothing, methods=["GET"])
    table = RouteTable("/api", [by_hand, service])
    assert found(table, "GET", "/api/a/list") is None
    assert found(table, "GET", "/api/a/b") == {"name": "b"}
    for path in ("/api/a/", "/api/a/b/", "/a/b", "/api/c/b"):
        assert found(table, "GET", path) is None
    assert found(table, "GET", "/api/a/b", root_path="/proxy") is None
    assert found(table, "GET", "/api/a/b", type="websocket") is None
