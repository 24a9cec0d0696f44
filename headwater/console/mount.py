"""The console on a server's port, at `/console`: once per process, and only where its packages are installed."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.responses import RedirectResponse

from headwater import optional
from headwater.console.context import Context, use
from headwater.console.history import History
from headwater.console.history_store import HistoryStore
from headwater.console.pages import PATH
from headwater.http.server import served_app
from headwater.services.captures import Captures
from headwater.services.gateways import Gateways
from headwater.services.queries import Queries
from headwater.services.queues import Queues
from headwater.services.syncs import Syncs
from headwater.services.tokens import Tokens

if TYPE_CHECKING:
    from headwater.apps.home import Runner as Announced
    from headwater.apps.runner import Runner
    from headwater.services.settings import Settings

STATIC = Path(__file__).with_name("static")


def page_of(address: str) -> str | None:
    """The address that a user opens in a browser; None where the console is not installed."""
    return f"{address}{PATH}" if optional.is_installed("nicegui") else None


def served_with_console(
    runner: Runner, *, port: int = 0, settings: Settings | None = None
) -> AbstractContextManager[Announced]:
    """Serve a running app with the console while the block runs, as `served_app` does without it."""
    return served_app(runner, port=port, settings=settings, **console_for_server())


# Any: arguments of the server, by their names.
def console_for_server(*, guarded: bool = False, secure: bool = False) -> dict[str, Any]:
    """Arguments of a server that serves the console; none where `headwater[console]` is not installed.

    With `guarded` every user logs in with a token; without it, only if the log has tokens. With `secure` browsers send the
    session's cookie over HTTPS alone.
    """
    if not optional.is_installed("nicegui"):
        return {}
    return {"mount": [_mount(guarded=guarded, secure=secure)], "public": ["/", PATH]}


def _mount(*, guarded: bool, secure: bool) -> Callable[[FastAPI], None]:
    # NiceGUI would otherwise write its files into the current folder.
    os.environ.setdefault("NICEGUI_STORAGE_PATH", os.devnull)
    optional.require("nicegui", extra="console")

    def mount(app: FastAPI) -> None:
        service = app.state.service
        history = History(
            service.log,
            Queries(service),
            Captures(service),
            Gateways(service),
            Syncs(service),
            Queues(service),
            store=HistoryStore(service.log),
        )
        use(
            Context(
                host=service,
                tokens=Tokens(service.log.home, clock=service.log.clock),
                guarded=guarded,
                history=history,
                audit=service.audit,
            )
        )
        _serve_pages(app, name=service.log.address, secure=secure)
        _measure_while_running(app, history)

    return mount


def _serve_pages(app: FastAPI, *, name: str, secure: bool) -> None:
    from nicegui import Client, core, ui
    from nicegui import app as pages

    from headwater.console.authentication import LoginRequired
    from headwater.console.shell import declare_pages

    declare_pages()
    if "/static-headwater" not in {getattr(route, "path", "") for route in core.app.routes}:
        pages.add_static_files("/static-headwater", STATIC)
    # A second server in this process, such as `headwater dev` starts after each save, gets the same pages. Open pages belong
    # to the first server: forget their clients, so that browsers load the pages again.
    Client.instances.clear()
    core.app.user_middleware.clear()
    core.app.middleware_stack = None
    core.app.add_middleware(LoginRequired)  # the first added is the innermost, inside the one that reads the session
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]  # browsers share cookies between the ports of a host
    ui.run_with(
        app,
        mount_path=PATH,
        title="Headwater",
        favicon=STATIC / "favicon.svg",
        tailwind=False,
        storage_secret=secrets.token_urlsafe(32),
        session_middleware_kwargs={
            "session_cookie": f"headwater_{mark}",
            "same_site": "strict",
            "https_only": secure,
            "max_age": None,  # ends with the browser
        },
        show_welcome_message=False,
        reconnect_timeout=10.0,
        binding_refresh_interval=None,
    )

    @app.get("/", include_in_schema=False)
    async def home() -> RedirectResponse:
        return RedirectResponse(f"{PATH}/")


def _measure_while_running(app: FastAPI, history: History) -> None:
    inner = app.router.lifespan_context

    @asynccontextmanager
    # Any: the state of the lifespan inside.
    async def lifespan(served: FastAPI) -> Any:
        history.start()
        async with inner(served) as state:
            yield state
        history.stop()

    app.router.lifespan_context = lifespan
