"""The local API of a running app: what it does, and what it may be told. Loopback only, with a token.

It is served by the process that runs the app, on a free port of 127.0.0.1. The token stands in `api.json`, which only
the user who runs the app can read.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from headwater.errors import ArgumentInvalid, HeadwaterError, PortTaken

if TYPE_CHECKING:
    from fastapi import FastAPI

    from headwater.runtime.home import Runner as Announced
    from headwater.runtime.runner import Runner
    from headwater.views.bounds import Bounds

HOST = "127.0.0.1"
_STATUS_OF_EXIT = {2: 400, 3: 404, 4: 403, 5: 409}


@contextlib.contextmanager
def served(runner: Runner, *, port: int = 0, bounds: Bounds | None = None) -> Iterator[Announced]:
    """Serve the API of a runner while the block runs; the address and the token stand in the app's home.

    `bounds` are what one statement over its views may take.
    """
    import uvicorn

    listening = bound(port)
    announced = runner.home.announce(f"http://{HOST}:{listening.getsockname()[1]}")
    settings = uvicorn.Config(
        application(runner, token=announced.token, bounds=bounds),
        log_level="error",
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="headwater-api", daemon=True)
    thread.start()
    try:
        yield announced
    finally:
        runner.home.withdraw()
        server.should_exit = True
        thread.join(5)
        listening.close()


def bound(port: int) -> socket.socket:
    # The protocol is named so that answers are sent at once: asyncio asks for that only where it is.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
    except OSError:
        listening.close()
        raise PortTaken(address=f"{HOST}:{port}") from None
    listening.listen(128)
    return listening


def application(runner: Runner, *, token: str, bounds: Bounds | None = None) -> FastAPI:
    """The API as an application; whoever mounts it elsewhere brings guards of their own."""
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse

    from headwater.views.bounds import SERVED
    from headwater.views.http import router as view_routes

    app = FastAPI(title=f"Headwater: {runner.app.name}", docs_url=None, redoc_url=None)

    @app.middleware("http")
    # Any: what a middleware calls next has no public type.
    async def guard(request: Request, proceed: Any) -> Any:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        host = (request.headers.get("host") or "").rpartition(":")[0]
        if host not in (HOST, "localhost"):  # a page elsewhere whose name was pointed at this machine
            return JSONResponse({"error": "HostUnknown", "message": "This API answers to 127.0.0.1 only."}, 421)
        if not hmac.compare_digest(given.encode(), token.encode()):
            message = "The token is missing or wrong. It stands in the app's `api.json`, and changes with each start."
            return JSONResponse({"error": "TokenInvalid", "message": message}, 401)
        return await proceed(request)

    @app.exception_handler(HeadwaterError)
    async def refused(_: Request, error: HeadwaterError) -> JSONResponse:
        body = {"error": type(error).__name__, "message": str(error), "facts": _plain(error.facts())}
        return JSONResponse(body, _STATUS_OF_EXIT.get(error.exit_code, 500))

    app.include_router(routes_of(runner))
    app.include_router(view_routes(runner.keeper, bounds=bounds or SERVED))
    return app


# Any: FastAPI's own router.
def routes_of(runner: Runner) -> Any:
    """The routes over a running app, for this API and for a server that has more."""
    from fastapi import APIRouter
    from fastapi.responses import JSONResponse, PlainTextResponse, Response

    routes = APIRouter(prefix="/v1")

    @routes.get("/app")
    def app() -> dict[str, Any]:
        return {"app": runner.app.name, "log": str(runner.log.path), "spark": runner.spark is not None}

    @routes.get("/queries")
    def queries() -> list[dict[str, Any]]:
        return [status.as_dict() for status in runner.statuses()]

    @routes.post("/queries/{name}/stop")
    def stop(name: str) -> dict[str, str]:
        runner.stop_query(name)
        return {"query": name, "state": "stopped"}

    @routes.post("/queries/{name}/restart")
    def restart(name: str) -> dict[str, str]:
        runner.restart_query(name)
        return {"query": name, "state": "restarting"}

    @routes.post("/queries/{name}/ask")
    def ask(
        name: str,
        key: str | None = None,
        compute: str | None = None,
        operator: str | None = None,
        rows_max: int = 10_000,
        seconds: float = 30.0,
    ) -> dict[str, Any]:
        given = {"key": _json("key", key), "compute": _json("compute", compute)}
        return runner.app.ask(name, operator=operator, rows_max=rows_max, seconds=seconds, **given).as_json()

    @routes.get("/queries/{name}/explain")
    def explain(name: str) -> dict[str, str]:
        return {"query": name, "plan": runner.explain(name)}

    @routes.get("/queries/{name}/trouble")
    def trouble(name: str) -> dict[str, Any]:
        found = runner.trouble(name)
        return {} if found is None else asdict(found)

    @routes.post("/queries/{name}/replay")
    def replay(name: str, start: str = "earliest", version: str | None = None) -> dict[str, Any]:
        return runner.replays.begin(name, start=start, version=version).as_dict()

    @routes.get("/queries/{name}/replay")
    def compare(name: str) -> dict[str, Any]:
        return runner.replays.report(name).as_dict()

    @routes.post("/queries/{name}/switch")
    def switch(name: str) -> dict[str, Any]:
        return runner.replays.switch(name).as_dict()

    @routes.delete("/queries/{name}/replay")
    def drop(name: str) -> dict[str, Any]:
        return runner.replays.drop(name).as_dict()

    @routes.get("/graph")
    def graph(format: str = "text") -> Response:
        from headwater.runtime.drawing import as_svg, as_text

        if format == "svg":
            return Response(as_svg(runner.graph()), media_type="image/svg+xml")
        if format == "json":
            return JSONResponse(asdict(runner.graph()))
        return PlainTextResponse(as_text(runner.graph()))

    @routes.get("/metrics")
    def prometheus() -> PlainTextResponse:
        from headwater.runtime.metrics import metrics

        return PlainTextResponse(metrics(runner.statuses(), runner.log), media_type="text/plain; version=0.0.4")

    @routes.post("/views/{name}/rebuild")
    def rebuild(name: str) -> dict[str, Any]:
        return runner.rebuild_view(name)

    @routes.delete("/views/{name}")
    def drop_view(name: str) -> dict[str, Any]:
        return runner.drop_view(name)

    @routes.post("/stop")
    def stop_all() -> dict[str, str]:
        runner.request_stop()
        return {"app": runner.app.name, "state": "stopping"}

    return routes


def _json(name: str, text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        raise ArgumentInvalid(name=name, value=text, expected='JSON, such as 42 or {"card": 42}') from None


def _plain(facts: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
        for name, value in facts.items()
    }
