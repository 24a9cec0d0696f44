"""The schema registry at the root of the server: the service of subjects, with errors as Confluent's clients know them."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from headwater.errors import ArgumentInvalid, HeadwaterError, SchemaInvalid
from headwater.http.router import router as router_of
from headwater.log.errors import ReadOnly
from headwater.services.host import Host
from headwater.services.subjects import MEDIA, RegistryRefusal, Subjects

#: Errors, for the OpenAPI document.
# Any: FastAPI's own form for it.
ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "description": "An error with the registry's own code.",
        "content": {
            MEDIA: {
                "schema": {
                    "type": "object",
                    "properties": {"error_code": {"type": "integer"}, "message": {"type": "string"}},
                }
            }
        },
    }
}


def router(host: Host) -> APIRouter:
    """The routes of the registry. What else a client may send is ignored, as the registry does."""
    return router_of(Subjects, host, ignore_unknown=True, route_class=_Route)


class _Route(APIRoute):
    """Answers with the registry's error codes."""

    # Any: FastAPI's own type.
    def get_route_handler(self) -> Any:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                response: Response = await handle(request)
            except (RegistryRefusal, HeadwaterError) as error:
                code = _code(error)
                if code is None:
                    raise
                body = orjson.dumps({"error_code": code, "message": str(error)})
                return Response(body, code if code < 1_000 else code // 100, media_type=MEDIA)
            return response

        return answer


def _code(error: Exception) -> int | None:
    """The registry's code for an error; None for errors that it does not have."""
    if isinstance(error, RegistryRefusal):
        return error.code
    if isinstance(error, SchemaInvalid):
        return 42201
    if isinstance(error, ArgumentInvalid):
        return 422
    if isinstance(error, ReadOnly):
        return 42205
    return 403 if isinstance(error, HeadwaterError) and error.exit_code == 4 else None
