"""Subjects of the schema registry: whom they belong to, how they are found, and how the registry says no."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field

from headwater.server.compatibility import DEFAULT_LEVEL, LEVELS, parsed
from headwater.server.registered import EVERY_SUBJECT, Registered, Registry
from headwater.server.service import caller_of
from headwater.server.tokens import EVERY


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


def topic_of(subject: str) -> str:
    """The topic that a subject is named for.

    >>> topic_of("orders-value"), topic_of("orders-key"), topic_of("com.example.Order")
    ('orders', 'orders', 'com.example.Order')
    """
    for ending in ("-value", "-key"):
        if subject.endswith(ending) and len(subject) > len(ending):
            return subject.removesuffix(ending)
    return subject


def require(request: Request, action: Any, subject: str) -> None:
    caller_of(request).require(action, topic_of(subject))


def sees(request: Request, subject: str) -> bool:
    return caller_of(request).sees(topic_of(subject))


def check_subject(subject: str) -> None:
    if not subject.strip() or len(subject) > 500 or not subject.isprintable() or subject == EVERY_SUBJECT:
        raise Refused(42208, f"The specified subject '{subject[:100]}' is not valid.")


def schema_of(asked: SchemaForm) -> Any:
    if (asked.kind or "AVRO").upper() != "AVRO":
        raise Refused(42201, f"Schemas of the type {asked.kind} are not known here; AVRO is")
    if asked.references:
        raise Refused(42201, "References to other schemas are not known here")
    return parsed(asked.text)


def checked_level(asked: LevelForm) -> str:
    level = asked.compatibility.upper()
    if level not in LEVELS:
        raise Refused(42203, f"Invalid compatibility level. Valid values are {', '.join(LEVELS)}")
    return level


def level_of_subject(registry: Registry, subject: str) -> str:
    return registry.level(subject) or registry.level(EVERY_SUBJECT) or DEFAULT_LEVEL


def known_versions(registry: Registry, subject: str, *, deleted: bool = False) -> dict[int, Registered]:
    found = registry.versions(subject, deleted=deleted)
    if not found:
        raise Refused(40401, f"Subject '{subject}' not found.")
    return found


def version_of(registry: Registry, subject: str, version: str, *, deleted: bool = False) -> Registered:
    known = known_versions(registry, subject, deleted=deleted)
    if version in ("latest", "-1"):
        return known[max(known)]
    if not (version.isascii() and version.isdecimal()) or not 1 <= int(version[:12]) < 2**31:
        allowed = 'Allowed values are between [1, 2^31-1] and the string "latest"'
        raise Refused(42202, f"The specified version '{version[:50]}' is not a valid version id. {allowed}")
    if int(version) not in known:
        raise Refused(40402, f"Version {version} not found.")
    return known[int(version)]


def text_of(registry: Registry, request: Request, identity: int) -> str:
    found = registry.text(identity)
    # A number that is used only by topics that the caller may not see is as one that is not used. Nobody knows any more
    # which topics one was used by whose subjects were deleted for good.
    subjects = {one.subject for one in registry.used_by(identity, deleted=True)} or {EVERY}
    if found is None or not any(sees(request, subject) for subject in subjects):
        raise Refused(40403, f"Schema {identity} not found")
    return found


def written(found: Registered) -> dict[str, Any]:
    return {"subject": found.subject, "version": found.version, "id": found.id, "schema": found.schema}
