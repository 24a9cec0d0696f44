"""Putting the console on the server's application: once per process, at `/console`."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.responses import RedirectResponse

from headwater.console.apps import Apps
from headwater.console.context import Context, use
from headwater.console.history import History
from headwater.console.serving import PATH
from headwater.errors import PackageMissing
from headwater.server.audit import Audit
from headwater.server.tokens import Tokens

if TYPE_CHECKING:
    from headwater.runtime.runner import Runner

STATIC = Path(__file__).with_name("static")


def mounted(runner: Runner | None = None, *, guarded: bool = False, secure: bool = False) -> Callable[[FastAPI], None]:
    """A mount for the server: the console over its log, and over the app that this process runs, if it runs one.

    With `guarded` everybody logs in with a token; without it that begins once the log has tokens. With `secure` browsers
    keep the session for HTTPS alone.
    """
    _import_nicegui()

    def mount(app: FastAPI) -> None:
        service = app.state.service
        apps = Apps(service.log, runner, service=service)
        history = History(service.log, apps)
        use(
            Context(
                service=service,
                runner=runner,
                tokens=Tokens(service.log.path, clock=service.log.clock),
                guarded=guarded,
                apps=apps,
                history=history,
                audit=None if service.log.read_only else Audit(service.log),
            )
        )
        _serve_pages(app, name=str(service.log.path), secure=secure)
        _while_it_runs(app, history)

    return mount


def _import_nicegui() -> None:
    """Bring NiceGUI in, without the files that it would lay into the current folder."""
    os.environ.setdefault("NICEGUI_STORAGE_PATH", os.devnull)
    try:
        import nicegui  # noqa: F401
    except ImportError as error:
        raise PackageMissing(package="nicegui", extra="console") from error


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
