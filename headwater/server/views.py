"""The views of a log whose apps may or may not run: asked of the app that runs, or read from what it left.

An app that serves itself mounts its own routes instead, which also have subscriptions and reads that wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
from fastapi import APIRouter, Header, Request
from fastapi.responses import Response
from pydantic import BaseModel

from headwater.errors import StatementExceeded
from headwater.log import EmbeddedLog
from headwater.log.remote.wire import ARROW, table_to_bytes
from headwater.runtime.viewing import views_of
from headwater.server.settings import Settings
from headwater.server.statements import Asked, Statements, answered

if TYPE_CHECKING:
    from headwater.views.bounds import Bounds


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


def router(log: EmbeddedLog, *, settings: Settings | None = None) -> APIRouter:
    """The routes of views, read only. Where several apps have a view of one name, `app` says whose is meant."""
    routes = APIRouter(prefix="/v1", tags=["views"])
    bounds = (settings or Settings()).statement_bounds

    def run(request: Request, asked: Asked) -> pa.Table:
        statements: Statements | None = request.app.state.service.statements
        return answered(log, asked) if statements is None else statements.query(asked)

    @routes.get("/views")
    def listed(app: str | None = None) -> list[dict[str, Any]]:
        """All views, with how fresh they are and whether their app runs."""
        with views_of(log, app) as views:
            return views.described()

    @routes.get("/views/{name}")
    def described(name: str, app: str | None = None) -> dict[str, Any]:
        """One view."""
        with views_of(log, app) as views:
            return views.describe(name)

    @routes.post("/views/{name}/get")
    def get(name: str, asked: ViewKey, app: str | None = None, accept: str = Header(default="")) -> Response:
        """The row with a key; null where there is none."""
        from headwater.views.wire import json_rows, unpacked

        with views_of(log, app, bounds=bounds) as views:
            table = views.view(name).table(unpacked(asked.key) or {}, limit=1)
        if ARROW in accept:
            return Response(table_to_bytes(table), media_type=ARROW)
        rows = json_rows(table)
        return Response(orjson.dumps({"row": rows[0] if rows else None}), media_type="application/json")

    @routes.post("/views/{name}/rows")
    def rows(
        request: Request, name: str, asked: ViewRows, app: str | None = None, accept: str = Header(default="")
    ) -> Response:
        """The rows, or those that fit. More of them than an answer may have are refused with 422."""
        from headwater.views.http import bounds_of

        within = bounds_of(bounds, accept)
        limit = _at_most(asked.limit, within)
        question = Asked(view=name, where=asked.where, parameters=asked.parameters, limit=limit, app=app, bounds=within)
        return _answer(run(request, question), accept, within, name)

    @routes.post("/sql")
    def sql(
        request: Request, asked: ViewStatement, app: str | None = None, accept: str = Header(default="")
    ) -> Response:
        """The result of one SELECT over topics and views. One that takes or gives too much is refused with 422."""
        from headwater.views.http import bounds_of

        within = bounds_of(bounds, accept)
        question = Asked(statement=asked.sql, parameters=asked.parameters, app=app, bounds=within)
        return _answer(run(request, question), accept, within, asked.sql)

    return routes


def _at_most(limit: int | None, bounds: Bounds) -> int | None:
    """As many rows as were asked for; of all of them no more than tell that there are too many."""
    if bounds.rows_max is None:
        return limit
    return bounds.rows_max + 1 if limit is None else min(limit, bounds.rows_max + 1)


def _answer(table: pa.Table, accept: str, bounds: Bounds, asked: str) -> Response:
    from headwater.views.wire import json_rows

    if ARROW in accept:
        return Response(table_to_bytes(table), media_type=ARROW)
    if bounds.rows_max is not None and table.num_rows > bounds.rows_max:  # an app that runs has bounds of its own
        raise StatementExceeded(statement=asked[:200], bound=f"{bounds.rows_max:,} rows")
    body = {"columns": table.column_names, "rows": json_rows(table)}
    return Response(orjson.dumps(body), media_type="application/json")
