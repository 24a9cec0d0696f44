"""Rows of views, SQL and subscriptions over HTTP: what is no plain call of the services.

Answers are JSON, or Arrow streams for a client that accepts them. A subscription is a stream of server-sent events; each
event has its position as its id, so that a browser's `Last-Event-ID` goes on where it was cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import orjson
import pyarrow as pa
from fastapi import APIRouter, Header, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel

from headwater.errors import HeadwaterError
from headwater.log.remote.wire import ARROW, table_to_bytes
from headwater.services.host import Host, caller_of
from headwater.services.sql import Sql
from headwater.services.views import ReadOptions, Views
from headwater.views.errors import StatementExceeded

if TYPE_CHECKING:
    from headwater.views import Change, Subscription, ViewKeeper, ViewSpec

#: Readers that wait for their own writes hold a thread each; they must not take those of the others.
WAITING_READERS_MAX = 200
KEEP_ALIVE_SECONDS = 15.0
_EVENTS_AT_ONCE = 500


class ViewRead(BaseModel):
    """What every read may ask for: rows that reflect at least these offsets of topics, within so many seconds."""

    at_least: dict[str, dict[int, int]] | None = None
    timeout: float | None = None


class ViewKey(ViewRead):
    """The key of a row."""

    # Any: JSON values of any type; here and below.
    key: dict[str, Any]


class ViewRows(ViewRead):
    """Which rows of a view: a condition in SQL, or values of columns."""

    where: str | dict[str, Any] | None = None
    parameters: Any = None
    limit: int | None = None


class ViewStatement(ViewRead):
    """One SELECT over topics and views; `view` is the view that `at_least` is about."""

    sql: str
    parameters: Any = None
    view: str | None = None


def router(host: Host) -> APIRouter:
    """The routes. Where several apps have a view of one name, `app` says which app is meant."""
    routes = APIRouter(tags=["views"])
    waiting = anyio.CapacityLimiter(WAITING_READERS_MAX)

    def views_of(request: Request) -> Views:
        return Views(host, caller_of(request))

    async def read(asked: ViewRead, work: Callable[[], pa.Table]) -> pa.Table:
        return await anyio.to_thread.run_sync(work, limiter=waiting if asked.at_least else host.limiter)

    @routes.post("/views/{view}/get")
    async def get(
        request: Request, view: str, asked: ViewKey, app: str | None = None, accept: str = Header(default="")
    ) -> Response:
        """Look a row up by its key; null where there is none."""
        from headwater.views.wire import json_rows, unpacked

        views, key = views_of(request), unpacked(asked.key) or {}
        # What takes no time is done here; a thread of its own for it would take longer than the look-up.
        table = None if asked.at_least else views.glance(view, key, app=app)
        if table is None:
            options = _options(asked, app, accept)
            table = await read(asked, lambda: views.get(view, key, options))
        if ARROW in accept:
            return Response(table_to_bytes(table), media_type=ARROW)
        rows = json_rows(table)
        return Response(orjson.dumps({"row": rows[0] if rows else None}), media_type="application/json")

    @routes.post("/views/{view}/rows")
    async def rows(
        request: Request, view: str, asked: ViewRows, app: str | None = None, accept: str = Header(default="")
    ) -> Response:
        """Read the rows, or those that fit. More of them than an answer may have are refused with 422."""
        views, options = views_of(request), _options(asked, app, accept)
        table = await read(asked, lambda: views.rows(view, asked.where, asked.parameters, asked.limit, options))
        return _answer(host, table, accept, view)

    @routes.post("/sql")
    async def sql(
        request: Request, asked: ViewStatement, app: str | None = None, accept: str = Header(default="")
    ) -> Response:
        """Run one SELECT over topics and views. One that takes or gives too much is refused with 422."""
        service, options = Sql(host, caller_of(request)), _options(asked, app, accept)
        table = await read(asked, lambda: service.run(asked.sql, asked.parameters, options, view=asked.view))
        return _answer(host, table, accept, asked.sql)

    @routes.get("/views/{view}/subscribe")
    async def subscribe(
        request: Request, view: str, app: str | None = None, last_event_id: str | None = Header(default=None)
    ) -> Response:
        """Follow a view that this process maintains: all rows, then each change as it is applied."""
        views = views_of(request)
        subscription = await host.run(lambda: views.subscribe(view, last_event_id or None, app=app))
        assert host.runner is not None
        stream = _events(host.runner.keeper, view, subscription, request)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    return routes


def _options(asked: ViewRead, app: str | None, accept: str) -> ReadOptions:
    return ReadOptions(at_least=asked.at_least, timeout=asked.timeout, app=app, arrow=ARROW in accept)


def _answer(host: Host, table: pa.Table, accept: str, asked: str) -> Response:
    from headwater.views.wire import json_rows

    if ARROW in accept:
        return Response(table_to_bytes(table), media_type=ARROW)
    rows_max = host.settings.answer_rows_max
    if table.num_rows > rows_max:  # an app of another process has bounds of its own
        raise StatementExceeded(statement=asked[:200], bound=f"{rows_max:,} rows")
    body = {"columns": table.column_names, "rows": json_rows(table)}
    return Response(orjson.dumps(body), media_type="application/json")


async def _events(keeper: ViewKeeper, name: str, subscription: Subscription, request: Request) -> AsyncIterator[bytes]:
    """Changes as events; between them nothing runs, and no thread waits."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the server has ended, and its loop with it
            loop.call_soon_threadsafe(changed.set)

    with keeper.listening(wake):
        try:
            while not await request.is_disconnected():
                changed.clear()
                found = subscription.available()
                spec = keeper.maintained(name).spec
                told = False
                while text := await anyio.to_thread.run_sync(_texts, found, subscription, spec):
                    told = True
                    yield text
                if told and subscription.position is not None:
                    yield b"event: ready\nid: %s\ndata: {}\n\n" % subscription.position.to_json().encode()
                try:
                    await asyncio.wait_for(changed.wait(), KEEP_ALIVE_SECONDS)
                except TimeoutError:
                    yield b": still here\n\n"
        except HeadwaterError as error:  # the view was dropped, or the changelog is gone
            yield b"event: failure\ndata: %s\n\n" % str(error).encode().replace(b"\n", b" ")
        finally:
            subscription.close()


def _texts(found: Iterator[Change], subscription: Subscription, spec: ViewSpec) -> bytes:
    """The next events, some at once; nothing when there are no more."""
    from headwater.views.wire import encoded_change

    parts = []
    for change in itertools.islice(found, _EVENTS_AT_ONCE):
        position = subscription.position
        place = b"id: %s\n" % position.to_json().encode() if position is not None else b""
        parts.append(b"event: change\n%sdata: %s\n\n" % (place, encoded_change(change, spec)))
    return b"".join(parts)
