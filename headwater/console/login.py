"""Logging in and out: a plain form, for there is nothing live to see before it."""

from __future__ import annotations

import math
import uuid
from html import escape
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from headwater.console.context import context
from headwater.http.errors import TooManyRequests
from headwater.services.tokens import TokenInvalid

STATIC = Path(__file__).with_name("static")
ROOT = "/console"
LOGO = (
    '<svg width="22" height="22" viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2.4" stroke-linecap="round" '
    'aria-hidden="true"><path d="M3 7c3-3 6-3 9 0s6 3 9 0"/><path d="M3 13c3-3 6-3 9 0s6 3 9 0" opacity=".7"/>'
    '<path d="M3 19c3-3 6-3 9 0s6 3 9 0" opacity=".4"/></svg>'
)
#: Longer than any token.
TOKEN_CHARACTERS_MAX = 1_000


def add_login(app: FastAPI) -> None:
    """The login page, and the way out."""

    @app.get("/login", include_in_schema=False)
    async def show(request: Request, to: str = "") -> Response:
        if context().caller(request.session.get("id", "")) is not None:
            return RedirectResponse(_inside(to), status_code=303)
        return _page(to)

    @app.post("/login", include_in_schema=False)
    async def enter(request: Request) -> Response:
        form = await request.form(max_files=0, max_fields=4)
        to, text = str(form.get("to", "")), str(form.get("token", "")).strip()[:TOKEN_CHARACTERS_MAX]
        address = request.client.host if request.client else "unknown"
        # A new session with each login, against session fixation.
        visitor = str(uuid.uuid4())
        try:
            caller = context().log_in(visitor, text, address=address)
        except TooManyRequests as error:
            return _page(to, str(error), status=429, headers={"Retry-After": str(math.ceil(error.seconds))})
        except TokenInvalid as error:
            return _page(to, str(error), status=401)
        request.session["id"] = visitor
        request.state.target = caller.name  # for the audit topic
        return RedirectResponse(_inside(to), status_code=303)

    @app.post("/logout", include_in_schema=False)
    async def leave(request: Request) -> Response:
        context().log_out(request.session.get("id", ""))
        request.session["id"] = str(uuid.uuid4())
        return RedirectResponse(f"{ROOT}/login", status_code=303)


def _inside(to: str) -> str:
    """Where to go after the login: a page of the console, never another place."""
    return to if to.startswith(f"{ROOT}/") and "\\" not in to else f"{ROOT}/"


def _page(to: str, trouble: str = "", *, status: int = 200, headers: dict[str, str] | None = None) -> HTMLResponse:
    from nicegui import __version__

    fonts = f"{ROOT}/_nicegui/{__version__}/static/fonts.css"
    told = f'<p class="note bad small" role="alert" id="told">{escape(trouble)}</p>' if trouble else ""
    wrong = ' aria-invalid="true" aria-describedby="told"' if trouble else ""
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Log in · Headwater</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="{ROOT}/static-headwater/favicon.svg"><link rel="stylesheet" href="{fonts}">
<script src="{ROOT}/static-headwater/console.js?{version()}"></script>
<link rel="stylesheet" href="{ROOT}/static-headwater/console.css?{version()}"></head>
<body><main class="hw-login"><form class="card" method="post" action="{ROOT}/login">
<span class="hw-brand">{LOGO}Headwater</span>
<h1>Log in</h1>
<p class="quiet">This log asks for a token. <code>headwater token create NAME</code> makes one.</p>
<input type="hidden" name="to" value="{escape(to)}">
<label for="token">Token</label>
<input class="plain-input mono" id="token" name="token" type="password" autocomplete="current-password" required autofocus{wrong}>
{told}<button class="plain-button primary" type="submit">Log in</button>
</form></main></body></html>"""
    return HTMLResponse(page, status_code=status, headers={"Cache-Control": "no-store", **(headers or {})})


def version() -> int:
    """Changes with the files of `static`, so that browsers keep no old ones."""
    return int(max(path.stat().st_mtime for path in STATIC.iterdir()))
