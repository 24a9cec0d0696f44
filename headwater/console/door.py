"""The door of the console: who may come in, and what browsers are told to refuse.

Everything but the login page and its looks asks for a caller: pages, files, and each message of an open page. So a token
that is revoked or has expired is worth nothing at once, also in pages that were opened with it.
"""

from __future__ import annotations

from urllib.parse import quote

from nicegui import __version__
from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from headwater.console.context import context
from headwater.http.guard import App, Receive, Scope, Send

LOGIN = "/login"
#: Paths that need no login: the login page and its static files, none of which hold data of this log.
OPEN_PATHS = (LOGIN, "/static-headwater/", f"/_nicegui/{__version__}/static/")
#: Scripts and styles in the page itself are how NiceGUI works, and Vue compiles its templates in the browser. Nothing may be
#: loaded from other hosts or sent to them, whatever a page contains, and no other page may show the console in a frame.
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


class Door:
    """An ASGI application around the pages, inside the one that reads the session's cookie."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            answer = None if self._may_pass(scope) else _refusal(scope)
            await (answer or self._app)(scope, receive, _with_headers(send))
        elif scope["type"] != "websocket":
            await self._app(scope, receive, send)
        elif self._may_pass(scope):
            await self._app(scope, _while_welcome(scope, receive), send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _may_pass(self, scope: Scope) -> bool:
        path = _path(scope)
        is_open = scope["type"] == "http" and any(
            path == one or (one.endswith("/") and path.startswith(one)) for one in OPEN_PATHS
        )
        return is_open or _is_known(scope)


def _is_known(scope: Scope) -> bool:
    return context().caller(scope.get("session", {}).get("id", "")) is not None


def _path(scope: Scope) -> str:
    """The path below the place where the console is mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "")) or "/"


def _refusal(scope: Scope) -> Response:
    if scope["method"] not in ("GET", "HEAD"):
        return PlainTextResponse("Log in first.\n", status_code=401)
    query = scope.get("query_string", b"").decode("latin-1")
    wanted = scope["path"] + (f"?{query}" if query else "")
    return RedirectResponse(f"{scope.get('root_path', '')}{LOGIN}?to={quote(wanted, safe='/')}", status_code=303)


def _with_headers(send: Send) -> Send:
    async def started(message: Scope) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
        await send(message)

    return started


def _while_welcome(scope: Scope, receive: Receive) -> Receive:
    """Receive the messages of an open page; drop them as soon as the session of the page has ended."""

    async def next_message() -> Scope:
        while True:
            message = await receive()
            if message["type"] != "websocket.receive" or _is_known(scope):
                return message

    return next_message
