"""The server as one application: the routers of all services, what else is mounted, and the guard in front of all."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import PlainTextResponse

from headwater.errors import Closed, NotFound, kind_of
from headwater.home import absolute_address
from headwater.http import registry, rows, streams
from headwater.http.guard import Guard
from headwater.http.problems import PREFIX, PROBLEM_SCHEMA, PROBLEMS, handle
from headwater.http.route_table import RouteTable
from headwater.http.router import router
from headwater.services.audit import Audit
from headwater.services.groups import Members
from headwater.services.host import Host
from headwater.services.metrics import Metrics
from headwater.services.producers import Producers
from headwater.services.route import Service
from headwater.services.services import service_classes
from headwater.services.settings import Settings
from headwater.services.statements import Statements
from headwater.services.tokens import Tokens

if TYPE_CHECKING:
    from headwater.alerts import Watcher
    from headwater.apps.runner import Runner
    from headwater.log import Log
    from headwater.sourcing import Entities

#: Adds pages or routes to the application, behind the same guard.
Mount = Callable[[FastAPI], None]


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
    # Any: the user's state, command and event classes.
    entities: Iterable[Entities[Any, Any, Any]] = (),
    confined: bool = True,
) -> FastAPI:
    """A log as an ASGI application.

    `runner` is the app that this process runs. `mount` are functions that add other routes to the application, such as
    pages; they find the caller in `request.state.caller`. The paths in `public` need no token: what is there must
    authenticate callers itself, as pages with a login do. `host` is the host name that requests may name besides
    loopback, "" for any; `master` is a token with all scopes that is stored nowhere. With `guarded` every caller needs a
    token, also while none has been made; without it, once the first one is made. A `watcher` of alert rules is
    started and stopped with the application; without one, rules can be read and changed, but are not evaluated here.
    Commands can be sent to `entities`; those of others are only read.
    SQL of callers runs in processes of its own, which are started for the first statement; with `confined=False` in this
    one, where a statement may take more than its bounds.
    """
    deciders = {each.name: each for each in entities}
    service = Host(log=log, settings=settings or Settings(), runner=runner, entities=deciders)
    if watcher is not None:
        service.watcher = watcher
    service.audit = None if log.read_only else Audit(log)
    if confined:
        bounds = service.settings
        service.statements = Statements(
            absolute_address(log.address), memory_max=bounds.statement_memory_max, count_max=bounds.statements_max
        )

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.open()
        if watcher is not None:
            watcher.start()
        yield
        if watcher is not None:
            await service.run(watcher.close)
        service.close()

    app = FastAPI(title="Headwater", docs_url=None, redoc_url=None, openapi_url="/api/openapi.json", lifespan=lifespan)
    app.state.service = service
    handle(app)
    app.include_router(_health(service))
    app.include_router(router(Metrics, service), responses=PROBLEMS)
    routers = _routers(service)
    app.router.routes.insert(0, RouteTable(PREFIX, routers))
    for routes in routers:
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


def _routers(host: Host) -> list[APIRouter]:
    """The routers under the prefix. Those by hand come first: the path of a view's stream must not be taken for a view."""
    services: tuple[type[Service], ...] = (Members, Producers, *service_classes().values())
    return [rows.router(host), streams.router(host), *(router(kind, host) for kind in services), _problems()]


def _problems() -> APIRouter:
    routes = APIRouter(tags=["health"])

    # Any: JSON.
    @routes.get("/problems/{name}")
    async def problem_type(name: str) -> dict[str, Any]:
        """What a type of problem means, and its remedy; facts stand in braces."""
        kind = kind_of(name)
        if kind is None:
            raise NotFound(kind="path", name=f"{PREFIX}/problems/{name}")
        return {"error": name, "title": (kind.__doc__ or ""), "problem": kind.problem, "remedy": kind.remedy}

    return routes


def _health(host: Host) -> APIRouter:
    routes = APIRouter(tags=["health"])

    @routes.get("/livez", response_class=PlainTextResponse)
    async def live() -> str:
        """Whether the process answers."""
        return "ok\n"

    @routes.get("/readyz", response_class=PlainTextResponse, responses=PROBLEMS)
    async def ready() -> str:
        """Whether the log can be read."""
        if host.closing:
            raise Closed(what="server")
        await host.run(host.log.topics)
        return "ok\n"

    return routes


def _describe(app: FastAPI) -> None:
    """Add the form of errors and the authentication to the OpenAPI document."""

    # Any: JSON.
    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title="Headwater", version="1", routes=app.routes)
            components = made.setdefault("components", {})
            components.setdefault("schemas", {})["Problem"] = PROBLEM_SCHEMA
            components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            made["security"] = [{"token": []}, {}]
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # as FastAPI's documentation has it
