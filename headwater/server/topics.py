"""Topics over HTTP: made, listed, described, changed and deleted."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from fastapi import APIRouter, Query, Request

from headwater.log import Retention
from headwater.log.remote.wire import description_to_json, topic_to_json
from headwater.schema import schema_from_json, schema_to_json
from headwater.server.forms import Alteration, Columns, Declaration, RetentionForm, TopicForm, TopicList
from headwater.server.service import Service, caller_of

PAGE_MAX = 1_000


def router(service: Service) -> APIRouter:
    """The routes of topics."""
    routes = APIRouter(prefix="/topics", tags=["topics"])
    log = service.log

    @routes.get("", response_model=TopicList)
    def listed(
        request: Request,
        pattern: str = "*",
        internal: bool = False,
        limit: int = Query(default=100, ge=1, le=PAGE_MAX),
        after: str = "",
    ) -> dict[str, Any]:
        """The names of topics, a page at a time: `after` is the last name of the page before."""
        caller = caller_of(request)
        names = [name for name in log.topics(pattern, internal=internal) if caller.sees(name)]
        begin = bisect_right(names, after) if after else 0
        page = names[begin : begin + limit]
        return {"topics": page, "next": page[-1] if begin + limit < len(names) else None}

    @routes.post("", status_code=201, response_model=TopicForm)
    def create(request: Request, asked: Declaration) -> dict[str, Any]:
        """Make a topic."""
        request.state.target = asked.name
        caller_of(request).require("admin", asked.name)
        given = asked.model_dump(exclude={"name", "schema_", "retention"}, exclude_none=True)
        made = log.create(asked.name, _schema(asked.schema_), retention=_retention(asked.retention), **given)
        return topic_to_json(made)

    @routes.get("/{topic}", response_model=TopicForm)
    def found(request: Request, topic: str) -> dict[str, Any]:
        """What a topic is."""
        caller_of(request).require_sight(topic)
        return topic_to_json(log.topic(topic))

    @routes.get("/{topic}/describe")
    def describe(request: Request, topic: str) -> dict[str, Any]:
        """What a topic is, and what each of its partitions holds."""
        caller_of(request).require_sight(topic)
        return description_to_json(log.describe(topic))

    @routes.get("/{topic}/schemas/{version}", response_model=Columns)
    def schema(request: Request, topic: str, version: int) -> dict[str, Any]:
        """The schema that a topic had in a version."""
        caller_of(request).require_sight(topic)
        return schema_to_json(log.schema(topic, version))

    @routes.patch("/{topic}", response_model=TopicForm)
    def alter(request: Request, topic: str, asked: Alteration) -> dict[str, Any]:
        """Change a topic while it is in use."""
        caller_of(request).require("admin", topic)
        given = asked.model_dump(exclude={"schema_", "retention"}, exclude_none=True)
        changed = log.alter(topic, schema=_schema(asked.schema_), retention=_retention(asked.retention), **given)
        return topic_to_json(changed)

    @routes.delete("/{topic}", status_code=204)
    def delete(request: Request, topic: str) -> None:
        """Remove a topic and all its rows."""
        caller_of(request).require("admin", topic)
        log.delete(topic)

    return routes


# Any: whatever `parse_schema` understands.
def _schema(given: str | dict[str, str] | Columns | None) -> Any:
    return schema_from_json(given.model_dump()) if isinstance(given, Columns) else given


def _retention(given: str | RetentionForm | None) -> Retention | str | None:
    if isinstance(given, RetentionForm):
        return Retention(seconds_max=given.seconds_max, bytes_max=given.bytes_max)
    return given
