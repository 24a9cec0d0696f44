"""Who may use the console: a login page, sessions, and the headers that tell browsers what to refuse.

Every page, every file and each message of an open page needs a caller, except the login page and its style. So a token
that is revoked or has expired is refused at once, also in pages that were opened with it.
"""

from __future__ import annotations

import math
import uuid
from html import escape
from pathlib import Path
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from nicegui import __version__
from starlette.datastructures import MutableHeaders

from headwater.console.context import context
from headwater.console.pages import PATH
from headwater.http.errors import TooManyRequests
from headwater.http.guard import App, Receive, Scope, Send
from headwater.services.tokens import TokenInvalid

STATIC = Path(__file__).with_name("static")
LOGIN = "/login"
#: Paths that need no login: the login page and its static files, none of which hold data of this log.
OPEN_PATHS = (LOGIN, "/static-headwater/", f"/_nicegui/{__version__}/static/")
#: NiceGUI needs scripts and styles in the page itself, and Vue compiles its templates in the browser. Nothing may be loaded
#: from other hosts or sent to them, whatever a page contains, and no other page may show the console in a frame.
HEADERS = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'self'",
            "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "connect-src 'self'",
            "object-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
LOGO = (
    '<svg width="22" height="22" viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2.4" stroke-linecap="round" '
    'aria-hidden="true"><path d="M3 7c3-3 6-3 9 0s6 3 9 0"/><path d="M3 13c3-3 6-3 9 0s6 3 9 0" opacity=".7"/>'
    '<path d="M3 19c3-3 6-3 9 0s6 3 9 0" opacity=".4"/></svg>'
)
#: Longer than any token.
TOKEN_CHARACTERS_MAX = 1_000


class LoginRequired:
    """An ASGI application around the pages, inside the one that reads the session's cookie."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            answer = None if _is_open(scope) or _has_caller(scope) else _login_needed(scope)
            await (answer or self._app)(scope, receive, _with_headers(send))
        elif scope["type"] != "websocket":
            await self._app(scope, receive, send)
        elif _has_caller(scope):
            await self._app(scope, _while_logged_in(scope, receive), send)
        else:
            await send({"type": "websocket.close", "code": 1008})


def _is_open(scope: Scope) -> bool:
    path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
    return any(path == known or (known.endswith("/") and path.startswith(known)) for known in OPEN_PATHS)


def _has_caller(scope: Scope) -> bool:
    return context().caller(scope.get("session", {}).get("id", "")) is not None


def _login_needed(scope: Scope) -> Response:
    if scope["method"] not in ("GET", "HEAD"):
        return PlainTextResponse("Log in first.\n", status_code=401)
    query = scope.get("query_string", b"").decode("latin-1")
    wanted = scope["path"] + (f"?{query}" if query else "")
    return RedirectResponse(f"{scope.get('root_path', '')}{LOGIN}?to={quote(wanted, safe='/')}", status_code=303)


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Scope) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(HEADERS)
        await send(message)

    return send_with_headers


def _while_logged_in(scope: Scope, receive: Receive) -> Receive:
    """Receive the messages of an open page; drop them as soon as its session has ended."""

    async def next_message() -> Scope:
        while True:
            message = await receive()
            if message["type"] != "websocket.receive" or _has_caller(scope):
                return message

    return next_message


# -- the login page ---------------------------------------------------------------------------------------------------


def add_login(app: FastAPI) -> None:
    """Add the login page, a plain form, and the logout."""

    @app.get(LOGIN, include_in_schema=False)
    async def show(request: Request, to: str = "") -> Response:
        if context().caller(request.session.get("id", "")) is not None:
            return RedirectResponse(_inside(to), status_code=303)
        return _page(to)

    @app.post(LOGIN, include_in_schema=False)
    async def log_in(request: Request) -> Response:
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
    async def log_out(request: Request) -> Response:
        context().log_out(request.session.get("id", ""))
        request.session["id"] = str(uuid.uuid4())
        return RedirectResponse(f"{PATH}/login", status_code=303)


def _inside(to: str) -> str:
    """The page to open after the login: one of the console, never another address."""
    return to if to.startswith(f"{PATH}/") and "\\" not in to else f"{PATH}/"


def _page(to: str, problem: str = "", *, status: int = 200, headers: dict[str, str] | None = None) -> HTMLResponse:
    fonts = f"{PATH}/_nicegui/{__version__}/static/fonts.css"
    alert = f'<p class="note bad small" role="alert" id="problem">{escape(problem)}</p>' if problem else ""
    wrong = ' aria-invalid="true" aria-describedby="problem"' if problem else ""
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Log in · Headwater</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="{PATH}/static-headwater/favicon.svg"><link rel="stylesheet" href="{fonts}">
<script src="{PATH}/static-headwater/console.js?{version()}"></script>
<link rel="stylesheet" href="{PATH}/static-headwater/console.css?{version()}"></head>
<body><main class="hw-login"><form class="card" method="post" action="{PATH}/login">
<span class="hw-brand">{LOGO}Headwater</span>
<h1>Log in</h1>
<p class="quiet">This log asks for a token. <code>headwater token create NAME</code> makes one.</p>
<input type="hidden" name="to" value="{escape(to)}">
<label for="token">Token</label>
<input class="plain-input mono" id="token" name="token" type="password" autocomplete="current-password" required autofocus{wrong}>
{alert}<button class="plain-button primary" type="submit">Log in</button>
</form></main></body></html>"""
    return HTMLResponse(page, status_code=status, headers={"Cache-Control": "no-store", **(headers or {})})


def version() -> int:
    """Changes with the files of `static`, so that browsers do not use old ones from their cache."""
    return int(max(path.stat().st_mtime for path in STATIC.iterdir()))
