"""Putting the console on the server's application: once per process, at `/console`."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import RedirectResponse

from headwater.console.context import Context, use
from headwater.console.history import History
from headwater.console.serving import PATH
from headwater.optional import require
from headwater.services.queries import Queries
from headwater.services.tokens import Tokens

STATIC = Path(__file__).with_name("static")


def mounted(*, guarded: bool = False, secure: bool = False) -> Callable[[FastAPI], None]:
    """A mount for the server: the console over its log, and over the app that this process runs, if it runs one.

    With `guarded` everybody logs in with a token; without it that begins once the log has tokens. With `secure` browsers
    keep the session for HTTPS alone.
    """
    _import_nicegui()

    def mount(app: FastAPI) -> None:
        service = app.state.service
        history = History(service.log, Queries(service))
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
        _while_it_runs(app, history)

    return mount


def _import_nicegui() -> None:
    """Bring NiceGUI in, without the files that it would lay into the current folder."""
    os.environ.setdefault("NICEGUI_STORAGE_PATH", os.devnull)
    require("nicegui", extra="console")


def _serve_pages(app: FastAPI, *, name: str, secure: bool) -> None:
    from nicegui import Client, core, ui
    from nicegui import app as pages

    from headwater.console.door import Door
    from headwater.console.shell import declare_pages

    declare_pages()
    if "/static-headwater" not in {getattr(route, "path", "") for route in core.app.routes}:
        pages.add_static_files("/static-headwater", STATIC)
    # A second server in this process, as `headwater dev` makes one after each save, gets the same pages. Those that are
    # open belong to the first: not knowing them makes browsers load them anew.
    Client.instances.clear()
    core.app.user_middleware.clear()
    core.app.middleware_stack = None
    core.app.add_middleware(Door)  # the first is the innermost: behind the one that reads the session
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]  # cookies know no ports, so that two consoles would share one
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


def _while_it_runs(app: FastAPI, history: History) -> None:
    inner = app.router.lifespan_context

    @asynccontextmanager
    # Any: what another lifespan hands on.
    async def lifespan(served: FastAPI) -> Any:
        history.start()
        async with inner(served) as state:
            yield state
        history.stop()

    app.router.lifespan_context = lifespan
