"""Errors as answers: problem details (RFC 9457) made from the one tree of errors.

`error` and `facts` let a client raise the same class again. The status follows the exit code of the error's branch,
and for some classes HTTP's own status for it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import orjson

from headwater.errors import ArgumentInvalid, HeadwaterError, NotFound
from headwater.http.errors import BodyTooLarge, BodyTooSlow, TooManyRequests
from headwater.http.router import caller_of
from headwater.log.errors import ServerUnreachable
from headwater.log.remote.wire import error_to_json
from headwater.queues import QueueFull
from headwater.services.callers import EVERY
from headwater.services.host import ServerFull
from headwater.services.tokens import TokenInvalid

if TYPE_CHECKING:
    from fastapi import FastAPI, Request
    from starlette.responses import Response

PREFIX = "/api/v1"
PROBLEM = "application/problem+json"
_TEXTS = ("type", "title", "detail", "error")
#: The form of errors, for the OpenAPI document.
# Any: JSON Schema, and FastAPI's own form for answers.
PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "An error (RFC 9457)",
    "properties": {
        **{name: {"type": "string"} for name in _TEXTS},
        "status": {"type": "integer"},
        "facts": {"type": "object"},
    },
    "required": [*_TEXTS, "status", "facts"],
}
_CONTENT = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "description": "The request cannot be met; `error` names the class and `facts` say why.",
        "content": _CONTENT,
    },
    "5XX": {"description": "The server or its disk is at fault.", "content": _CONTENT},
}


# Any: JSON.
def problem(error: HeadwaterError, *, status: int | None = None) -> dict[str, Any]:
    """The problem details of an error. `message` repeats `detail`, for clients that know that name."""
    about = (type(error).__doc__ or "").partition("\n")[0]
    details = {
        "type": f"{PREFIX}/problems/{type(error).__name__}",
        "title": about.rstrip("."),
        "status": error.http_status if status is None else status,
        "detail": str(error),
        "message": str(error),
    }
    return details | error_to_json(error)


def answer(error: HeadwaterError, *, status: int | None = None) -> Response:
    from starlette.responses import Response

    body = problem(error, status=status)
    headers = {}
    if isinstance(error, TooManyRequests | ServerFull | QueueFull):
        headers["Retry-After"] = str(max(1, round(error.seconds)))
    elif body["status"] == 503:
        headers["Retry-After"] = "1"
    if isinstance(error, BodyTooSlow):
        headers["Connection"] = "close"  # the rest of the body is not read
    if isinstance(error, TokenInvalid):
        headers["WWW-Authenticate"] = 'Bearer realm="headwater"'
    try:
        content = orjson.dumps(body)
    except TypeError:  # a fact that is no text, which plain JSON escapes
        content = json.dumps(body).encode()
    return Response(content, body["status"], headers=headers, media_type=PROBLEM)


def handle(app: FastAPI) -> None:
    """Let an application answer every error in this form."""
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException

    @app.exception_handler(HeadwaterError)
    async def refused(request: Request, error: HeadwaterError) -> Response:
        # A similar name is a hint only for callers who may see all names.
        if getattr(error, "near", "") and not caller_of(request).sees(EVERY):
            error = type(error)(**{**error.facts(), "near": ""})
        return answer(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first.get("loc", ())[1:]) or "body"
        value = first.get("input")
        shown = value if isinstance(value, (str, int, float, bool, type(None))) else type(value).__name__
        expected = str(first.get("msg", "another value")).partition("Value error, ")[2] or str(first.get("msg"))
        return answer(ArgumentInvalid(name=where, value=shown, expected=expected), status=422)

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        if getattr(request.state, "body_too_large", None):
            return answer(BodyTooLarge(size_max=request.state.body_too_large))
        if error.status_code == 404:
            return answer(NotFound(kind="path", name=request.url.path))
        shown = f"{request.method} {request.url.path}"
        refusal = ArgumentInvalid(name="request", value=shown, expected=str(error.detail))
        response = answer(refusal, status=error.status_code)
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> Response:
        # The text of an unforeseen error may have secrets: it goes to the server's own log only.
        why = f"it failed with {type(error).__name__}"
        return answer(ServerUnreachable(address="this server", why=why), status=500)
