"""The paths of Confluent's schema registry, so that its clients and serialisers work against a log's server.

Only Avro, without references. A subject belongs to the topic that it is named for (`orders-value` to `orders`), and what
a token may do with that topic it may do with the subject. `docs/reference/http-api.md` says what differs.
"""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from headwater.errors import HeadwaterError, SchemaInvalid
from headwater.log.errors import ReadOnly
from headwater.schema.compatibility import DEFAULT_LEVEL, LEVELS, conflicts, parse_avro
from headwater.services.callers import EVERY
from headwater.services.host import Host, caller_of
from headwater.services.schema_registry import EVERY_SUBJECT, RegisteredSchema, SchemaRegistry, canonical
from headwater.services.schemas import Draft, SchemaIncompatible, Schemas, is_subject, registry_of, topic_of

MEDIA = "application/vnd.schemaregistry.v1+json"
# Any: FastAPI's own form for it.
ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "description": "An error with the registry's own code.",
        "content": {MEDIA: {"schema": {"$ref": "#/components/schemas/RegistryError"}}},
    }
}


class SchemaForm(BaseModel):
    """A schema to register or to look for; what else a client may send says nothing here."""

    model_config = ConfigDict(extra="ignore")
    text: str = Field(alias="schema")
    kind: str | None = Field(default="AVRO", alias="schemaType")
    references: list[Any] | None = None


class LevelForm(BaseModel):
    model_config = ConfigDict(extra="ignore")
    compatibility: str


class Refused(Exception):
    """An answer that says no."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class RegistryError(BaseModel):
    """An error as the registry's clients know it."""

    error_code: int
    message: str


class Answer(JSONResponse):
    """JSON under the registry's own media type."""

    media_type = MEDIA


def answer(body: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, media_type=MEDIA)


def refusal(error: Refused) -> Response:
    status = error.code if error.code < 1_000 else error.code // 100
    return answer({"error_code": error.code, "message": str(error)}, status)


def router(service: Host) -> APIRouter:
    """The routes of the registry."""
    registry = registry_of(service)
    routes = APIRouter(tags=["schema registry"], route_class=_route_class(), default_response_class=Answer)
    for add in (_schemas, _subjects, _levels):
        add(routes, registry)
    _registration(routes, registry, service)
    return routes


def _route_class() -> Any:
    """Routes that tell errors as the registry does."""
    from fastapi.exceptions import RequestValidationError
    from fastapi.routing import APIRoute

    class Route(APIRoute):
        def get_route_handler(self) -> Any:
            handle = super().get_route_handler()

            async def told(request: Request) -> Response:
                try:
                    found: Response = await handle(request)
                except Refused as error:
                    return refusal(error)
                except SchemaInvalid as error:
                    return refusal(Refused(42201, str(error)))
                except RequestValidationError as error:
                    return refusal(Refused(422, str(error.errors()[0].get("msg"))))
                except ReadOnly as error:
                    return refusal(Refused(42205, str(error)))
                except HeadwaterError as error:
                    if error.exit_code == 4:
                        return refusal(Refused(403, str(error)))
                    raise
                return found

            return told

    return Route


def _schemas(routes: APIRouter, registry: SchemaRegistry) -> None:
    @routes.get("/schemas/types")
    def types() -> Response:
        """The kinds of schemas that can be registered."""
        return answer(["AVRO"])

    @routes.get("/schemas/ids/{identity}")
    def by_id(request: Request, identity: int) -> Response:
        """The schema that has a number."""
        return answer({"schema": text_of(registry, request, identity)})

    @routes.get("/schemas/ids/{identity}/schema")
    def text_by_id(request: Request, identity: int) -> Response:
        """The schema that has a number, as it is."""
        return Response(text_of(registry, request, identity), media_type=MEDIA)

    @routes.get("/schemas/ids/{identity}/subjects")
    def subjects_of(request: Request, identity: int) -> Response:
        """The subjects under which a schema is registered."""
        text_of(registry, request, identity)
        return answer(sorted({found.subject for found in _uses(registry, request, identity)}))

    @routes.get("/schemas/ids/{identity}/versions")
    def versions_of(request: Request, identity: int) -> Response:
        """The subjects and versions under which a schema is registered."""
        text_of(registry, request, identity)
        uses = _uses(registry, request, identity)
        return answer([{"subject": found.subject, "version": found.version} for found in uses])


def _uses(registry: SchemaRegistry, request: Request, identity: int) -> list[RegisteredSchema]:
    """Where a schema is registered, as far as the caller may know of it."""
    return [found for found in registry.used_by(identity) if sees(request, found.subject)]


def _subjects(routes: APIRouter, registry: SchemaRegistry) -> None:
    @routes.get("/subjects")
    def listed(
        request: Request, deleted: bool = False, prefix: str = Query(default="", alias="subjectPrefix")
    ) -> Response:
        """The subjects."""
        names = registry.subjects(deleted=deleted)
        return answer([name for name in names if name.startswith(prefix) and sees(request, name)])

    @routes.get("/subjects/{subject}/versions")
    def versions(request: Request, subject: str, deleted: bool = False) -> Response:
        """The versions of a subject."""
        require(request, "read", subject)
        return answer(list(known_versions(registry, subject, deleted=deleted)))

    @routes.get("/subjects/{subject}/versions/{version}")
    def version(request: Request, subject: str, version: str, deleted: bool = False) -> Response:
        """One version of a subject; `latest` is the last."""
        require(request, "read", subject)
        return answer(written(version_of(registry, subject, version, deleted=deleted)))

    @routes.get("/subjects/{subject}/versions/{version}/schema")
    def text(request: Request, subject: str, version: str, deleted: bool = False) -> Response:
        """The schema of one version, as it is."""
        require(request, "read", subject)
        return Response(version_of(registry, subject, version, deleted=deleted).schema, media_type=MEDIA)

    @routes.get("/subjects/{subject}/versions/{version}/referencedby")
    def referenced(request: Request, subject: str, version: str) -> Response:
        """Schemas that refer to this one: none, for references are not known here."""
        require(request, "read", subject)
        version_of(registry, subject, version)
        return answer([])

    @routes.delete("/subjects/{subject}")
    def delete(request: Request, subject: str, permanent: bool = False) -> Response:
        """Hide a subject, or forget one that is hidden."""
        require(request, "admin", subject)
        known = known_versions(registry, subject, deleted=permanent)
        if permanent and not all(found.deleted for found in known.values()):
            raise Refused(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")
        registry.delete(subject, list(known), permanent=permanent)
        return answer(list(known))

    @routes.delete("/subjects/{subject}/versions/{version}")
    def delete_version(request: Request, subject: str, version: str, permanent: bool = False) -> Response:
        """Hide a version, or forget one that is hidden."""
        require(request, "admin", subject)
        found = version_of(registry, subject, version, deleted=permanent)
        if permanent and not found.deleted:
            raise Refused(40407, f"Subject '{subject}' Version {found.version} was not deleted first")
        registry.delete(subject, [found.version], permanent=permanent)
        return answer(found.version)


def _registration(routes: APIRouter, registry: SchemaRegistry, service: Host) -> None:
    @routes.post("/subjects/{subject}/versions")
    def register(request: Request, subject: str, asked: SchemaForm) -> Response:
        """Register a schema; the same one again gets the number that it has."""
        check_subject(subject)
        schema_of(asked)
        request.state.is_audited = True  # by the service
        address = request.client.host if request.client else "unknown"
        schemas = Schemas(service, caller_of(request), address=address)
        try:
            made = schemas.register(subject, Draft(schema=asked.text), kind="subject")
        except SchemaIncompatible as error:
            why = f"Schema being registered is incompatible with an earlier schema: {error.why}"
            raise Refused(409, why) from error
        return answer({"id": made.id, "version": made.version, "schema": made.text})

    @routes.post("/subjects/{subject}")
    def look_up(request: Request, subject: str, asked: SchemaForm, deleted: bool = False) -> Response:
        """The version under which a subject has a schema."""
        require(request, "read", subject)
        schema_of(asked)
        key = canonical(asked.text)
        for found in known_versions(registry, subject, deleted=deleted).values():
            if canonical(found.schema) == key:
                return answer(written(found))
        raise Refused(40403, "Schema not found")

    @routes.post("/compatibility/subjects/{subject}/versions/{version}")
    def fits_version(
        request: Request, subject: str, version: str, asked: SchemaForm, verbose: bool = False
    ) -> Response:
        """Whether a schema may follow one version."""
        require(request, "read", subject)
        schema = schema_of(asked)
        other = version_of(registry, subject, version)
        return _verdict(conflicts(registry.level_in_force(subject), schema, [orjson.loads(other.schema)]), verbose)

    @routes.post("/compatibility/subjects/{subject}/versions")
    def fits(request: Request, subject: str, asked: SchemaForm, verbose: bool = False) -> Response:
        """Whether a schema may follow all that the subject's level asks about."""
        require(request, "read", subject)
        schema = schema_of(asked)
        known = [orjson.loads(found.schema) for found in registry.versions(subject).values()]
        return _verdict(conflicts(registry.level_in_force(subject), schema, known), verbose)


def _levels(routes: APIRouter, registry: SchemaRegistry) -> None:
    @routes.get("/config")
    def level() -> Response:
        """The level of subjects that have none of their own."""
        return answer({"compatibilityLevel": registry.level(EVERY_SUBJECT) or DEFAULT_LEVEL})

    @routes.put("/config")
    def set_level(request: Request, asked: LevelForm) -> Response:
        """Set the level of subjects that have none of their own."""
        caller_of(request).require("admin", EVERY)
        registry.set_level(EVERY_SUBJECT, checked_level(asked))
        return answer({"compatibility": asked.compatibility.upper()})

    @routes.get("/config/{subject}")
    def level_of(
        request: Request, subject: str, default: bool = Query(default=False, alias="defaultToGlobal")
    ) -> Response:
        """The level of a subject."""
        require(request, "read", subject)
        own = registry.level(subject)
        if own is None and not default:
            raise Refused(40408, f"Subject '{subject}' does not have subject-level compatibility configured")
        return answer({"compatibilityLevel": own or registry.level_in_force(subject)})

    @routes.put("/config/{subject}")
    def set_level_of(request: Request, subject: str, asked: LevelForm) -> Response:
        """Set the level of a subject."""
        check_subject(subject)
        require(request, "admin", subject)
        registry.set_level(subject, checked_level(asked))
        return answer({"compatibility": asked.compatibility.upper()})

    @routes.delete("/config/{subject}")
    def forget_level(request: Request, subject: str) -> Response:
        """Let a subject have the level of all."""
        require(request, "admin", subject)
        own = registry.level(subject)
        if own is None:
            raise Refused(40401, f"Subject '{subject}' not found.")
        registry.set_level(subject, None)
        return answer({"compatibilityLevel": own})

    @routes.get("/mode")
    def mode() -> Response:
        """Whether schemas may be registered: always."""
        return answer({"mode": "READWRITE"})


def _verdict(found: list[str], verbose: bool) -> Response:
    return answer({"is_compatible": not found} | ({"messages": found} if verbose else {}))


# -- subjects and versions ---------------------------------------------------------------------------------------------


def require(request: Request, action: Any, subject: str) -> None:
    caller_of(request).require(action, topic_of(subject))


def sees(request: Request, subject: str) -> bool:
    return caller_of(request).sees(topic_of(subject))


def check_subject(subject: str) -> None:
    if not is_subject(subject):
        raise Refused(42208, f"The specified subject '{subject[:100]}' is not valid.")


def schema_of(asked: SchemaForm) -> Any:
    if (asked.kind or "AVRO").upper() != "AVRO":
        raise Refused(42201, f"Schemas of the type {asked.kind} are not known here; AVRO is")
    if asked.references:
        raise Refused(42201, "References to other schemas are not known here")
    return parse_avro(asked.text)


def checked_level(asked: LevelForm) -> str:
    level = asked.compatibility.upper()
    if level not in LEVELS:
        raise Refused(42203, f"Invalid compatibility level. Valid values are {', '.join(LEVELS)}")
    return level


def known_versions(registry: SchemaRegistry, subject: str, *, deleted: bool = False) -> dict[int, RegisteredSchema]:
    found = registry.versions(subject, deleted=deleted)
    if not found:
        raise Refused(40401, f"Subject '{subject}' not found.")
    return found


def version_of(registry: SchemaRegistry, subject: str, version: str, *, deleted: bool = False) -> RegisteredSchema:
    known = known_versions(registry, subject, deleted=deleted)
    if version in ("latest", "-1"):
        return known[max(known)]
    if not (version.isascii() and version.isdecimal()) or not 1 <= int(version[:12]) < 2**31:
        allowed = 'Allowed values are between [1, 2^31-1] and the string "latest"'
        raise Refused(42202, f"The specified version '{version[:50]}' is not a valid version id. {allowed}")
    if int(version) not in known:
        raise Refused(40402, f"Version {version} not found.")
    return known[int(version)]


def text_of(registry: SchemaRegistry, request: Request, identity: int) -> str:
    found = registry.text(identity)
    # A number that is used only by topics that the caller may not see is as one that is not used. Of a number whose
    # subjects were deleted for good, the topics are not known any more: it is for callers who see all topics.
    subjects = {one.subject for one in registry.used_by(identity, deleted=True)} or {EVERY}
    if found is None or not any(sees(request, subject) for subject in subjects):
        raise Refused(40403, f"Schema {identity} not found")
    return found


def written(found: RegisteredSchema) -> dict[str, Any]:
    return {"subject": found.subject, "version": found.version, "id": found.id, "schema": found.schema}
