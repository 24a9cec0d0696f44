"""Routes follow from services: no path is added by hand unawares, and no method forgets to check its caller."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.config import Config
from headwater.errors import ArgumentInvalid, NotAllowed, NotFound
from headwater.http import application
from headwater.log import Log
from headwater.log import open as open_log
from headwater.services import Settings
from headwater.services.callers import Caller
from headwater.services.groups import Members
from headwater.services.host import Host
from headwater.services.json_form import json_schema
from headwater.services.metrics import Metrics
from headwater.services.producers import Producers
from headwater.services.queues import NewMessage
from headwater.services.route import LOCAL_ONLY, Parameter, Route, Service
from headwater.services.services import service_classes
from headwater.services.subjects import RegistryRefusal, Subjects

API = "/api/v1"
KINDS: tuple[type[Service], ...] = (*service_classes().values(), Members, Producers, Metrics, Subjects)
#: Streams and bodies of rows are written by hand; their modules say why.
BY_HAND = {
    ("GET", f"{API}/problems/{{name}}"),
    ("GET", f"{API}/topics/{{topic}}/partitions/{{partition}}/rows"),
    ("GET", f"{API}/topics/{{topic}}/receipts"),
    ("GET", f"{API}/topics/{{topic}}/rows"),
    ("GET", f"{API}/topics/{{topic}}/tail"),
    ("GET", f"{API}/views/{{view}}/subscribe"),
    ("GET", "/livez"),
    ("GET", "/readyz"),
    ("POST", f"{API}/staged/{{producer}}/{{sequence}}/rows/{{topic}}"),
    ("POST", f"{API}/topics/{{topic}}/rows"),
    ("POST", f"{API}/transactions/{{transaction}}/rows/{{topic}}"),
}
#: Methods that answer every caller: with nothing but what the caller may see, or with nothing about the log.
FOR_ALL = {
    *(f"Queries.{name}" for name in ("statuses",)),
    *("DeadLetters.topics", "Schemas.list_schemas", "Topics.page", "Views.all", "Rows.wait"),
    *("Queues.list_queues", "Queues.exchanges", "EntityService.kinds"),
    *(f"Subjects.{name}" for name in ("all", "level", "mode", "types")),
}
ROUTES = [(kind, name, route) for kind in KINDS for name, route in kind.routes().items()]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with open_log(tmp_path_factory.mktemp("routes") / "log", config=Config(maintenance="manual")) as opened:
        opened.create("orders", "id int64")
        opened.commit_offsets("orders", "orders", {0: 0})
        yield opened


def test_every_path_is_declared_by_a_service_or_says_why_it_is_not(tmp_path: Path) -> None:
    with open_log(tmp_path / "log") as log:
        paths = application(log).openapi()["paths"]
    served = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    declared = {
        (route.method, route.path if kind in (Metrics, Subjects) else API + route.path)
        for kind, _, route in ROUTES
        if route.method != LOCAL_ONLY
    }
    assert served - declared == BY_HAND
    assert declared <= served


@pytest.mark.parametrize(("kind", "name", "route"), ROUTES, ids=[f"{kind.__name__}.{name}" for kind, name, _ in ROUTES])
def test_a_caller_without_a_scope_is_refused(log: Log, kind: type[Service], name: str, route: Route) -> None:
    service = kind(Host(log=log, settings=Settings(wait_seconds_max=0.001)), Caller(name="eve", scopes=()))
    label = f"{kind.__name__}.{name}"

    def call() -> Any:
        answer = getattr(service, name)(**route.arguments(_values(route), {}))
        return asyncio.run(answer) if inspect.iscoroutine(answer) else answer

    if label in FOR_ALL:
        assert "orders" not in repr(call())
        return
    # A group, a query, a schema or a transaction of others does not exist for this caller.
    with pytest.raises((NotAllowed, NotFound, RegistryRefusal)) as caught:
        call()
    assert not isinstance(caught.value, ArgumentInvalid)


# Any: JSON.
def _values(route: Route) -> dict[str, Any]:
    """A value for each parameter that is required; an alert rule is about a group as well."""
    required = {one.name: _value(one) for one in route.parameters if one.is_required}
    return required | ({"group": "orders"} if "kind" in required else {})


def _value(parameter: Parameter) -> Any:
    kind = json_schema(parameter.kind).get("type")
    if parameter.kind is Any:
        return "orders"
    if parameter.kind is pa.Schema:
        return "id int64"
    if parameter.name == "schema":
        return '{"type": "record", "name": "r", "fields": []}'
    if parameter.name == "kind":
        return "lag"
    if kind == "object":
        assert not is_dataclass(parameter.kind) or not fields(parameter.kind)
        return {"orders": {}} if parameter.name in ("offsets", "places") and "int, int]]" in str(parameter.kind) else {}
    if parameter.kind == list[NewMessage]:
        return [{"body": "orders"}]
    return {"string": "orders", "integer": 0, "number": 1.0, "array": ["orders"]}[str(kind)]
