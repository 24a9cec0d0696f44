"""Views over HTTP: routes that the runner mounts in its local API, behind its token.

Answers are JSON, or Arrow streams for whoever accepts them. A subscription is a stream of server-sent events; each
carries its position as its id, so that a browser's `Last-Event-ID` goes on where it was cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import anyio.to_thread
import pyarrow as pa
from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel

from headwater.errors import ArgumentInvalid, HeadwaterError
from headwater.views.bounds import SERVED, Bounds
from headwater.views.conditions import check_condition, parser
from headwater.views.duck import DuckStore
from headwater.views.duck_types import quoted, restored, selected
from headwater.views.keeper import ViewKeeper
from headwater.views.parsing import is_plain
from headwater.views.spec import Change, ViewSpec
from headwater.views.subscription import Subscription
from headwater.views.view import View
from headwater.views.waiting import wait_for_offsets
from headwater.views.wire import ARROW, arrow_bytes, encoded_change, json_rows, unpacked

T = TypeVar("T")
#: Readers that wait for their own writes hold a thread each; they must not take those of the others.
WAITING_READERS_MAX = 200
KEEP_ALIVE_SECONDS = 15.0
_EVENTS_AT_ONCE = 500


class Reading(BaseModel):
    """What every read may ask for."""

    at_least: dict[str, dict[int, int]] | None = None
    timeout: float | None = None


class Lookup(Reading):
    # Any: JSON values of any type.
    key: dict[str, Any]


class Rows(Reading):
    where: str | dict[str, Any] | None = None
    parameters: Any = None
    limit: int | None = None


class Statement(Reading):
    sql: str
    parameters: Any = None
    view: str | None = None


#: Runs a statement, with its parameters as they came, away from this process.
Elsewhere = Callable[[str, Any, Bounds], pa.Table]


def router(keeper: ViewKeeper, *, bounds: Bounds = SERVED, elsewhere: Elsewhere | None = None) -> APIRouter:
    """The routes for the views of a keeper. A `HeadwaterError` is left to the application to answer.

    `bounds` are for each statement; those on rows are for answers in JSON, for Arrow streams are far smaller. Statements
    that may take more than the rows of a view are run by `elsewhere`; without it this process runs them.
    """
    routes = APIRouter(prefix="/v1")
    waiting = anyio.CapacityLimiter(WAITING_READERS_MAX)
    # Another store than DuckDB runs statements in a server of its own, and in its own language.
    elsewhere = elsewhere if isinstance(keeper.store, DuckStore) else None

    def runs_here(statement: str) -> bool:
        return elsewhere is None or is_plain(parser(), statement)

    def run_elsewhere(statement: str, parameters: Any, bounds: Bounds) -> pa.Table:
        assert elsewhere is not None
        return elsewhere(statement, parameters, bounds)

    async def read(asked: Reading, view: str | None, work: Callable[[], T]) -> T:
        if asked.at_least:
            name, at_least = _view_to_wait_for(view), asked.at_least
            await anyio.to_thread.run_sync(
                lambda: wait_for_offsets(keeper, name, at_least, asked.timeout), limiter=waiting
            )
        return await anyio.to_thread.run_sync(work)

    @routes.get("/views")
    def listed() -> list[dict[str, Any]]:
        return [view.describe() for view in keeper.views.values()]

    @routes.get("/views/{name}")
    def described(name: str) -> dict[str, Any]:
        return keeper.view(name).describe()

    @routes.post("/views/{name}/get")
    async def get(name: str, asked: Lookup, accept: str = Header(default="")) -> Response:
        view, key = keeper.view(name), unpacked(asked.key) or {}
        # What takes no time is done here; a thread of its own for it would take longer than the look-up.
        table = None if asked.at_least else view.glance(key)
        if table is None:
            table = await read(asked, name, lambda: view.lookup(key))
        if ARROW in accept:
            return Response(arrow_bytes(table), media_type=ARROW)
        rows = json_rows(table)
        return JSONResponse({"row": rows[0] if rows else None})

    @routes.post("/views/{name}/rows")
    async def rows(name: str, asked: Rows, accept: str = Header(default="")) -> Response:
        within = bounds_of(bounds, accept)
        view: View = keeper.view(name).within(within)

        def scan() -> pa.Table:
            statement = _condition(view, asked)
            if statement is None or runs_here(statement):
                return view.table(asked.where, parameters=unpacked(asked.parameters), limit=asked.limit)
            return restored(run_elsewhere(statement, asked.parameters, within), view.spec.schema)

        return _answer(await read(asked, name, scan), accept)

    @routes.post("/sql")
    async def sql(asked: Statement, accept: str = Header(default="")) -> Response:
        within = bounds_of(bounds, accept)

        def run() -> pa.Table:
            if runs_here(asked.sql):
                return keeper.store.query(asked.sql, unpacked(asked.parameters), bounds=within)
            return run_elsewhere(asked.sql, asked.parameters, within)

        return _answer(await read(asked, asked.view, run), accept)

    @routes.get("/views/{name}/subscribe")
    async def subscribe(name: str, request: Request, last_event_id: str | None = Header(default=None)) -> Response:
        subscription = Subscription(keeper, name, _position(last_event_id))
        stream = _events(keeper, name, subscription, request)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    return routes


def _condition(view: View, asked: Rows) -> str | None:
    """The statement that a condition in SQL makes; None where there is none."""
    if not isinstance(asked.where, str):
        return None
    where = check_condition(view.name, asked.where)
    limit = f" LIMIT {int(asked.limit)}" if asked.limit is not None else ""
    return f"SELECT {selected(list(view.spec.schema))} FROM {quoted(view.name)} WHERE {where}{limit}"


def bounds_of(bounds: Bounds, accept: str) -> Bounds:
    """What a statement may take for an answer in this form."""
    return replace(bounds, rows_max=None) if ARROW in accept else bounds


def _view_to_wait_for(view: str | None) -> str:
    if view is None:
        raise ArgumentInvalid(name="view", value=None, expected="the view that `at_least` is about")
    return view


def _position(text: str | None) -> str | None:
    return text or None


def _answer(table: pa.Table, accept: str) -> Response:
    if ARROW in accept:
        return Response(arrow_bytes(table), media_type=ARROW)
    return JSONResponse({"columns": table.column_names, "rows": json_rows(table)})


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
                spec = keeper.upkeep(name).spec
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
    parts = []
    for change in itertools.islice(found, _EVENTS_AT_ONCE):
        position = subscription.position
        place = b"id: %s\n" % position.to_json().encode() if position is not None else b""
        parts.append(b"event: change\n%sdata: %s\n\n" % (place, encoded_change(change, spec)))
    return b"".join(parts)
