"""The same services over HTTP: each routed method becomes one request to a server, which checks and audits it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any, TypeVar

from headwater.errors import ArgumentInvalid
from headwater.log.port import Log
from headwater.log.remote.connection import Connection, quoted
from headwater.log.remote.wire import ARROW
from headwater.services.callers import LOCAL
from headwater.services.json_form import from_json, to_json, type_hints
from headwater.services.route import ARROW_PARAMETER, JSON, LOCAL_ONLY, Route, Service, Table

S = TypeVar("S", bound=Service)


@functools.cache
def remote(kind: type[S]) -> Callable[[Connection], S]:
    """The remote form of a service, which is made with a connection.

    A method that is no route runs here, on the answers of the routes, or as `remote_methods` of the service says.
    """
    methods = {name: _method(route) for name, route in kind.routes().items()}
    methods |= kind.remote_methods

    return type(f"Remote{kind.__name__}", (_Remote, kind), methods)


class _Remote:
    """Holds the connection instead of a host. The server checks the caller's scopes."""

    caller = LOCAL

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @functools.cached_property
    def log(self) -> Log:
        """The log of the server, for methods that run here on rows as Arrow."""
        from headwater.log.remote.log import RemoteLog

        found: Any = RemoteLog(self.connection.address, connection=self.connection)
        return found  # type: ignore[no-any-return]  # `groups` of a remote log is another class with the same methods


# Any: arguments and answers of every type.
def _method(route: Route) -> Callable[..., Any]:
    signature = inspect.signature(route.function)

    @functools.wraps(route.function)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        given = dict(bound.arguments)
        connection: Connection = given.pop("self").connection
        if route.method == LOCAL_ONLY:
            expected = "the folder of the log, on the machine that has it: no server does this"
            raise ArgumentInvalid(name="log", value=connection.address, expected=expected)
        given = _spread(route, given)
        path = route.path.format(**{name: quoted(str(given.pop(name))) for name in route.in_path})
        defaults = {one.name: one.default for one in route.parameters}
        values = {
            name: to_json(value)
            for name, value in given.items()
            if value is not None or (route.has_body and defaults[name] not in (None, inspect.Parameter.empty))
        }
        more: dict[str, Any] = {"json": values} if route.has_body else {"parameters": values}
        if route.answer is Table:
            more["headers"] = {"Accept": ARROW}
        response = connection.ask(route.method, path, wait_seconds=values.get("wait_seconds", 0.0), **more)
        if route.answer is type(None):
            return None
        if route.answer is Table:
            from headwater.views.wire import arrow_table

            return Table(arrow_table(response.content))
        if route.media != JSON:
            return response.text
        return from_json(route.answer, response.json(), name="answer")

    return call


def _spread(route: Route, given: dict[str, Any]) -> dict[str, Any]:
    """Arguments as they are sent: those that are dataclasses as their fields."""
    hints, values = type_hints(route.function), dict[str, Any]()
    for name, value in given.items():
        if is_dataclass(hints[name]):
            values |= {one.name: getattr(value, one.name) for one in route.parameters if one.of == name}
        else:
            values[name] = value
    values.pop(ARROW_PARAMETER, None)
    return values
