"""Subjects of the schema registry, under the paths and names of Confluent's, so that its clients work against a server.

Only Avro, without references. A subject belongs to the topic that it is named for (`orders-value` to `orders`), and its
scopes are those of that topic. `docs/reference/http-api.md` says what differs. `headwater/http/registry.py` mounts it.
"""

# ruff: noqa: N803, N815  # names of the registry's JSON

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from headwater.schema.compatibility import DEFAULT_LEVEL, LEVELS, conflicts, parse_avro
from headwater.services.callers import EVERY, Action
from headwater.services.route import Service, route
from headwater.services.schema_registry import EVERY_SUBJECT, RegisteredSchema, SchemaRegistry, canonical
from headwater.services.schemas import Draft, SchemaIncompatible, Schemas, is_subject, registry_of, topic_of

MEDIA = "application/vnd.schemaregistry.v1+json"


class RegistryRefusal(Exception):
    """An answer of the registry with one of its own error codes."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, kw_only=True)
class SchemaBody:
    """A schema to register or to look for."""

    schema: str
    schemaType: str | None = "AVRO"
    references: list[Any] | None = None

    # Any: Avro schemas are JSON values.
    def parsed(self) -> Any:
        """The schema as JSON; raises unless it is Avro without references."""
        if (self.schemaType or "AVRO").upper() != "AVRO":
            raise RegistryRefusal(42201, f"Schemas of the type {self.schemaType} are not known here; AVRO is")
        if self.references:
            raise RegistryRefusal(42201, "References to other schemas are not known here")
        return parse_avro(self.schema)


class Subjects(Service):
    """Subjects, their versions and their compatibility levels. Answers have the names of the registry's JSON."""

    # -- schemas by number --------------------------------------------------------------------------------------------

    @route("GET", "/schemas/types", media=MEDIA)
    def types(self) -> list[str]:
        """List the kinds of schemas that can be registered."""
        return ["AVRO"]

    @route("GET", "/schemas/ids/{identity}", media=MEDIA)
    def by_id(self, identity: int) -> dict[str, str]:
        """Read the schema that has a number."""
        return {"schema": self._text(identity)}

    @route("GET", "/schemas/ids/{identity}/schema", media=MEDIA)
    def text_by_id(self, identity: int) -> bytes:
        """Read the schema that has a number, without an object around it."""
        return self._text(identity).encode()

    @route("GET", "/schemas/ids/{identity}/subjects", media=MEDIA)
    def subjects_of(self, identity: int) -> list[str]:
        """List the subjects under which a schema is registered."""
        return sorted({found.subject for found in self._uses(identity)})

    @route("GET", "/schemas/ids/{identity}/versions", media=MEDIA)
    def versions_of(self, identity: int) -> list[dict[str, str | int]]:
        """List the subjects and versions under which a schema is registered."""
        return [{"subject": found.subject, "version": found.version} for found in self._uses(identity)]

    # -- subjects -----------------------------------------------------------------------------------------------------

    @route("GET", "/subjects", media=MEDIA)
    def all(self, *, deleted: bool = False, subjectPrefix: str = "") -> list[str]:
        """List the subjects."""
        names = self._registry.subjects(deleted=deleted)
        return [name for name in names if name.startswith(subjectPrefix) and self._sees(name)]

    @route("GET", "/subjects/{subject}/versions", media=MEDIA)
    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """List the versions of a subject."""
        self._require("read", subject)
        return list(self._versions(subject, deleted=deleted))

    @route("GET", "/subjects/{subject}/versions/{version}", media=MEDIA)
    def version(self, subject: str, version: str, *, deleted: bool = False) -> dict[str, str | int]:
        """Read one version of a subject; `latest` is the last."""
        self._require("read", subject)
        return _written(self._version(subject, version, deleted=deleted))

    @route("GET", "/subjects/{subject}/versions/{version}/schema", media=MEDIA)
    def text(self, subject: str, version: str, *, deleted: bool = False) -> bytes:
        """Read the schema of one version, without an object around it."""
        self._require("read", subject)
        return self._version(subject, version, deleted=deleted).schema.encode()

    @route("GET", "/subjects/{subject}/versions/{version}/referencedby", media=MEDIA)
    def referenced(self, subject: str, version: str) -> list[int]:
        """List the schemas that refer to this one: none, for references are not known here."""
        self._require("read", subject)
        self._version(subject, version)
        return []

    @route("DELETE", "/subjects/{subject}", media=MEDIA)
    def delete(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Hide a subject; with `permanent`, delete one that is hidden."""
        self._require("admin", subject)
        known = self._versions(subject, deleted=permanent)
        if permanent and not all(found.deleted for found in known.values()):
            raise RegistryRefusal(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")
        self._registry.delete(subject, list(known), permanent=permanent)
        return list(known)

    @route("DELETE", "/subjects/{subject}/versions/{version}", media=MEDIA)
    def delete_version(self, subject: str, version: str, *, permanent: bool = False) -> int:
        """Hide a version; with `permanent`, delete one that is hidden."""
        self._require("admin", subject)
        found = self._version(subject, version, deleted=permanent)
        if permanent and not found.deleted:
            raise RegistryRefusal(40407, f"Subject '{subject}' Version {found.version} was not deleted first")
        self._registry.delete(subject, [found.version], permanent=permanent)
        return found.version

    # -- registration -------------------------------------------------------------------------------------------------

    @route("POST", "/subjects/{subject}/versions", media=MEDIA, audited=False)  # by `Schemas`
    def register(self, subject: str, body: SchemaBody) -> dict[str, str | int | None]:
        """Register a schema; the same one again gets the number that it has."""
        _check_subject(subject)
        body.parsed()
        schemas = Schemas(self.host, self.caller, address=self.address)
        try:
            made = schemas.register(subject, Draft(schema=body.schema), kind="subject")
        except SchemaIncompatible as error:
            why = f"Schema being registered is incompatible with an earlier schema: {error.why}"
            raise RegistryRefusal(409, why) from error
        return {"id": made.id, "version": made.version, "schema": made.text}

    @route("POST", "/subjects/{subject}", media=MEDIA, audited=False)
    def look_up(self, subject: str, body: SchemaBody, *, deleted: bool = False) -> dict[str, str | int]:
        """Find the version under which a subject has a schema."""
        self._require("read", subject)
        body.parsed()
        key = canonical(body.schema)
        for found in self._versions(subject, deleted=deleted).values():
            if canonical(found.schema) == key:
                return _written(found)
        raise RegistryRefusal(40403, "Schema not found")

    @route("POST", "/compatibility/subjects/{subject}/versions/{version}", media=MEDIA, audited=False)
    def fits_version(self, subject: str, version: str, body: SchemaBody, *, verbose: bool = False) -> dict[str, Any]:
        """Check whether a schema may follow one version."""
        self._require("read", subject)
        schema = body.parsed()
        return self._verdict(subject, schema, [self._version(subject, version)], verbose=verbose)

    @route("POST", "/compatibility/subjects/{subject}/versions", media=MEDIA, audited=False)
    def fits(self, subject: str, body: SchemaBody, *, verbose: bool = False) -> dict[str, Any]:
        """Check whether a schema may follow all versions that the subject's level is about."""
        self._require("read", subject)
        schema = body.parsed()
        return self._verdict(subject, schema, list(self._registry.versions(subject).values()), verbose=verbose)

    # -- levels -------------------------------------------------------------------------------------------------------

    @route("GET", "/config", media=MEDIA)
    def level(self) -> dict[str, str]:
        """Read the level of subjects that have none of their own."""
        return {"compatibilityLevel": self._registry.level(EVERY_SUBJECT) or DEFAULT_LEVEL}

    @route("PUT", "/config", scope="admin:*", media=MEDIA)
    def set_level(self, compatibility: str) -> dict[str, str]:
        """Set the level of subjects that have none of their own."""
        self._registry.set_level(EVERY_SUBJECT, _checked_level(compatibility))
        return {"compatibility": compatibility.upper()}

    @route("GET", "/config/{subject}", media=MEDIA)
    def level_of(self, subject: str, *, defaultToGlobal: bool = False) -> dict[str, str]:
        """Read the level of a subject."""
        self._require("read", subject)
        own = self._registry.level(subject)
        if own is None and not defaultToGlobal:
            raise RegistryRefusal(40408, f"Subject '{subject}' does not have subject-level compatibility configured")
        return {"compatibilityLevel": own or self._registry.level_in_force(subject)}

    @route("PUT", "/config/{subject}", media=MEDIA)
    def set_level_of(self, subject: str, compatibility: str) -> dict[str, str]:
        """Set the level of a subject."""
        _check_subject(subject)
        self._require("admin", subject)
        self._registry.set_level(subject, _checked_level(compatibility))
        return {"compatibility": compatibility.upper()}

    @route("DELETE", "/config/{subject}", media=MEDIA)
    def delete_level(self, subject: str) -> dict[str, str]:
        """Delete the level of a subject: it has the level of all subjects then."""
        self._require("admin", subject)
        own = self._registry.level(subject)
        if own is None:
            raise RegistryRefusal(40401, f"Subject '{subject}' not found.")
        self._registry.set_level(subject, None)
        return {"compatibilityLevel": own}

    @route("GET", "/mode", media=MEDIA)
    def mode(self) -> dict[str, str]:
        """Read whether schemas may be registered: always."""
        return {"mode": "READWRITE"}

    # -- inside -------------------------------------------------------------------------------------------------------

    @property
    def _registry(self) -> SchemaRegistry:
        return registry_of(self.host)

    def _require(self, action: Action, subject: str) -> None:
        self.caller.require(action, topic_of(subject))

    def _sees(self, subject: str) -> bool:
        return self.caller.sees(topic_of(subject))

    def _text(self, identity: int) -> str:
        text = self._registry.text(identity)
        # A number that is used only by topics that the caller may not see does not exist for this caller. If all subjects
        # of a number were deleted, its topics are unknown: it exists for callers who see all topics.
        subjects = {one.subject for one in self._registry.used_by(identity, deleted=True)} or {EVERY}
        if text is None or not any(self._sees(subject) for subject in subjects):
            raise RegistryRefusal(40403, f"Schema {identity} not found")
        return text

    def _uses(self, identity: int) -> list[RegisteredSchema]:
        """Where a schema is registered, as far as the caller may see it."""
        self._text(identity)
        return [found for found in self._registry.used_by(identity) if self._sees(found.subject)]

    def _versions(self, subject: str, *, deleted: bool = False) -> dict[int, RegisteredSchema]:
        versions = self._registry.versions(subject, deleted=deleted)
        if not versions:
            raise RegistryRefusal(40401, f"Subject '{subject}' not found.")
        return versions

    def _version(self, subject: str, version: str, *, deleted: bool = False) -> RegisteredSchema:
        known = self._versions(subject, deleted=deleted)
        if version in ("latest", "-1"):
            return known[max(known)]
        if not (version.isascii() and version.isdecimal()) or not 1 <= int(version[:12]) < 2**31:
            allowed = 'Allowed values are between [1, 2^31-1] and the string "latest"'
            raise RegistryRefusal(42202, f"The specified version '{version[:50]}' is not a valid version id. {allowed}")
        if int(version) not in known:
            raise RegistryRefusal(40402, f"Version {version} not found.")
        return known[int(version)]

    # Any: an Avro schema, and JSON.
    def _verdict(self, subject: str, schema: Any, others: list[RegisteredSchema], *, verbose: bool) -> dict[str, Any]:
        found = conflicts(
            self._registry.level_in_force(subject), schema, [orjson.loads(other.schema) for other in others]
        )
        return {"is_compatible": not found} | ({"messages": found} if verbose else {})


def _written(found: RegisteredSchema) -> dict[str, str | int]:
    return {"subject": found.subject, "version": found.version, "id": found.id, "schema": found.schema}


def _check_subject(subject: str) -> None:
    if not is_subject(subject):
        raise RegistryRefusal(42208, f"The specified subject '{subject[:100]}' is not valid.")


def _checked_level(level: str) -> str:
    if level.upper() not in LEVELS:
        raise RegistryRefusal(42203, f"Invalid compatibility level. Valid values are {', '.join(LEVELS)}")
    return level.upper()
