"""The server as one application: routes of the log, of what else is mounted, and the guard in front of all."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any

import orjson
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import PlainTextResponse, Response

from headwater.errors import ArgumentInvalid, Closed, NotFound, kind_of
from headwater.http import alerts, members, registry, rows, tail, transactions, views, wait
from headwater.http.forms import PROBLEMS, Problem
from headwater.http.guard import Guard
from headwater.http.metrics import scrape
from headwater.http.problems import handle
from headwater.http.router import router
from headwater.services.audit import Audit
from headwater.services.callers import EVERY
from headwater.services.host import Host, caller_of
from headwater.services.services import SERVICES
from headwater.services.settings import Settings
from headwater.services.statements import Statements
from headwater.services.tokens import Tokens

if TYPE_CHECKING:
    from headwater.alerts import Watcher
    from headwater.apps.runner import Runner
    from headwater.log import Log

#: Something that adds pages or routes of its own to the application, behind the same guard.
Mount = Callable[[FastAPI], None]
PREFIX = "/api/v1"
#: The half of a letter, as JSON may write it; the other half may follow.
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


def application(
    log: Log,
    *,
    settings: Settings | None = None,
    tokens: Tokens | None = None,
    host: str = "127.0.0.1",
    master: str = "",
    guarded: bool = False,
    mount: Iterable[Mount] = (),
    public: Iterable[str] = (),
    runner: Runner | None = None,
    watcher: Watcher | None = None,
    confined: bool = True,
) -> FastAPI:
    """A log as an ASGI application.

    `runner` is the app that this process runs. `mount` are functions that add whatever else to the application, such as
    pages; they find the caller in `request.state.caller`. Under the paths in `public` no token is asked for, and what is there
    must ask by itself, as pages with a login do. `host` is the name that requests must ask for besides loopback,
    "" for any; `master` is a token that is good for everything and is kept nowhere. With `guarded` everybody needs a
    token, also while none has been made; without it that begins with the first one. A `watcher` of alert rules is
    started and stopped with the application; without one, rules can be read and changed, but are not evaluated here.
    SQL of callers runs in processes of its own, which are started for the first statement; with `confined=False` in this
    one, where a statement may take more than its bounds say.
    """
    service = Host(log=log, settings=settings or Settings(), runner=runner)
    if watcher is not None:
        service.watcher = watcher
    service.audit = None if log.read_only else Audit(log)
    if confined:
        bounds = service.settings
        service.statements = Statements(
            log.home, memory_max=bounds.statement_memory_max, count_max=bounds.statements_max
        )
    held = members.Members(service)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.open()
        if watcher is not None:
            watcher.start()
        yield
        if watcher is not None:
            await service.run(watcher.close)
        held.close()
        service.close()

    app = FastAPI(
        title="Headwater",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=lifespan,
        dependencies=[Depends(_whole_text)],
    )
    app.state.service = service
    handle(app)
    app.include_router(_health(service))
    for routes in _own(service, held):
        app.include_router(routes, prefix=PREFIX, responses=PROBLEMS)
    app.include_router(registry.router(service), responses=registry.ERRORS)
    for add in mount:
        add(app)
    _describe(app)
    app.add_middleware(
        Guard,
        tokens=tokens or Tokens(log.home, clock=log.clock),
        settings=service.settings,
        audit=service.audit,
        host=host,
        master=master,
        guarded=guarded,
        public=tuple(public),
    )
    return app


async def _whole_text(request: Request) -> None:
    """Refuse a body with half a letter in it (a lone surrogate): it is JSON, but no text that could be kept or sent."""
    if getattr(request.scope["route"], "body_field", None) is None:
        return
    body = await request.body()  # it has been read already
    if _HALF.search(body):
        try:
            orjson.loads(body)
        except orjson.JSONDecodeError:
            raise ArgumentInvalid(name="body", value="…", expected="JSON without lone surrogates") from None


def _own(service: Host, held: members.Members) -> list[APIRouter]:
    return [
        rows.router(service),
        rows.producer_router(service),
        wait.router(service),
        tail.router(service),
        members.router(service, held),
        transactions.router(service, transactions.Transactions(service)),
        alerts.router(service),
        *(router(kind, service) for kind in SERVICES.values()),
        views.router(service),
        _problems(),
    ]


def _problems() -> APIRouter:
    routes = APIRouter(tags=["health"])

    @routes.get("/problems/{name}")
    async def problem_type(name: str) -> dict[str, Any]:
        """What a type of problem means, and what can be done about it; facts stand in braces."""
        kind = kind_of(name)
        if kind is None:
            raise NotFound(kind="path", name=f"{PREFIX}/problems/{name}")
        return {"error": name, "title": (kind.__doc__ or ""), "problem": kind.problem, "remedy": kind.remedy}

    return routes


def _health(service: Host) -> APIRouter:
    routes = APIRouter(tags=["health"])

    @routes.get("/livez", response_class=PlainTextResponse)
    async def live() -> str:
        """Whether the process answers."""
        return "ok\n"

    @routes.get("/readyz", response_class=PlainTextResponse, responses=PROBLEMS)
    async def ready() -> str:
        """Whether the log can be read."""
        if service.closing:
            raise Closed(what="server")
        await service.run(service.log.topics)
        return "ok\n"

    @routes.get("/metrics", response_class=PlainTextResponse, responses=PROBLEMS)
    def prometheus(request: Request) -> Response:
        """How the log and the server do, for Prometheus."""
        caller = caller_of(request)
        caller.require("read", EVERY)
        return PlainTextResponse(scrape(service, sees=caller.sees), media_type="text/plain; version=0.0.4")

    return routes


def _describe(app: FastAPI) -> None:
    """Give the OpenAPI document the form of errors, and say how to authenticate."""

    # Any: JSON.
    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title="Headwater", version="1", routes=app.routes)
            components = made.setdefault("components", {})
            schemas = components.setdefault("schemas", {})
            schemas["Problem"] = Problem.model_json_schema()
            schemas["RegistryError"] = registry.RegistryError.model_json_schema()
            components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            made["security"] = [{"token": []}, {}]
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # as FastAPI's documentation has it
