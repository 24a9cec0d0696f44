"""The views of a log whose apps may or may not run: asked of the app that runs, or read from what it left.

An app that serves itself mounts its own routes instead, which also have subscriptions and reads that wait.
"""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
from fastapi import APIRouter, Header
from fastapi.responses import Response
from pydantic import BaseModel

from headwater.log import EmbeddedLog
from headwater.log.remote.wire import ARROW, table_to_bytes
from headwater.runtime.viewing import views_of


class ViewKey(BaseModel):
    """The key of a row."""

    # Any: JSON values, here and below.
    key: dict[str, Any]


class ViewRows(BaseModel):
    """Which rows of a view: a condition in SQL, or values of columns."""

    where: str | dict[str, Any] | None = None
    parameters: Any = None
    limit: int | None = None


class ViewStatement(BaseModel):
    """One SELECT over topics and views."""

    sql: str
    parameters: Any = None


def router(log: EmbeddedLog) -> APIRouter:
    """The routes of views, read only."""
    routes = APIRouter(prefix="/v1", tags=["views"])

    @routes.get("/views")
    def listed() -> list[dict[str, Any]]:
        """All views, with how fresh they are and whether their app runs."""
        with views_of(log) as views:
            return [views.describe(name) for name in views.names()]

    @routes.get("/views/{name}")
    def described(name: str) -> dict[str, Any]:
        """One view."""
        with views_of(log) as views:
            return views.describe(name)

    @routes.post("/views/{name}/get")
    def get(name: str, asked: ViewKey, accept: str = Header(default="")) -> Response:
        """The row with a key; null where there is none."""
        from headwater.views.wire import json_rows, unpacked

        with views_of(log) as views:
            table = views.view(name).table(unpacked(asked.key) or {}, limit=1)
        if ARROW in accept:
            return Response(table_to_bytes(table), media_type=ARROW)
        rows = json_rows(table)
        return Response(orjson.dumps({"row": rows[0] if rows else None}), media_type="application/json")

    @routes.post("/views/{name}/rows")
    def rows(name: str, asked: ViewRows, accept: str = Header(default="")) -> Response:
        """The rows, or those that fit."""
        from headwater.views.wire import unpacked

        with views_of(log) as views:
            given = unpacked(asked.parameters)
            return _answer(views.view(name).table(asked.where, parameters=given, limit=asked.limit), accept)

    @routes.post("/sql")
    def sql(asked: ViewStatement, accept: str = Header(default="")) -> Response:
        """The result of one SELECT over topics and views."""
        from headwater.views.sql import Sql
        from headwater.views.wire import unpacked

        with views_of(log) as views:
            return _answer(Sql(log, views, files=False).query(asked.sql, unpacked(asked.parameters)), accept)

    return routes


def _answer(table: pa.Table, accept: str) -> Response:
    from headwater.views.wire import json_rows

    if ARROW in accept:
        return Response(table_to_bytes(table), media_type=ARROW)
    body = {"columns": table.column_names, "rows": json_rows(table)}
    return Response(orjson.dumps(body), media_type="application/json")
