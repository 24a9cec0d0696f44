"""The base of services, and the declaration of their routes. Scopes are checked and changes are audited here.

    class Groups(Service):
        @route("POST", "/groups/{group}/seek", scope="admin:{topic}")
        def seek(self, group: str, topic: str, to: str, *, dry_run: bool = False) -> list[SeekStep]:
            '''Move a consumer group's committed offsets.'''

The HTTP route, its entry in the OpenAPI document and the remote service follow from this one signature: parameters in the
path are taken from the path, others from the query string, and of a POST, PUT or PATCH from the body as well. A parameter
that is a dataclass is spread: its fields stand beside the others, and one of them may be in the path.

A method that is a coroutine runs in the event loop of the server, for calls that wait without a thread. An answer of
the type `Table` is an Arrow stream for clients that accept one.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar

from headwater.errors import ArgumentInvalid, HeadwaterError
from headwater.services.callers import ACTIONS, LOCAL, Caller
from headwater.services.json_form import from_json, type_hints

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.log.port import Log
    from headwater.services.host import Host

P = ParamSpec("P")
T = TypeVar("T")
_IN_PATH = re.compile(r"{(\w+)}")
#: Instead of an HTTP method: only the user of the log's folder may call it. The path then only names what is audited.
LOCAL_ONLY = ""
JSON = "application/json"
#: The parameter that the server sets: whether the client accepts an Arrow stream.
ARROW_PARAMETER = "arrow"


@dataclass(frozen=True)
class Table:
    """Rows as an answer: an Arrow stream for clients that accept one, JSON for others."""

    table: pa.Table
    #: Whether JSON has the first row alone, or null.
    is_row: bool = False

    # Any: JSON.
    def as_json(self) -> dict[str, Any]:
        from headwater.views.wire import json_rows

        rows = json_rows(self.table)
        if self.is_row:
            return {"row": rows[0] if rows else None}
        return {"columns": self.table.column_names, "rows": rows}


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One value that a route takes; `of` is the dataclass parameter whose field it is."""

    name: str
    # Any: a type annotation, and a default of that type.
    kind: Any
    default: Any = inspect.Parameter.empty
    of: str = ""

    @property
    def is_required(self) -> bool:
        return self.default is inspect.Parameter.empty


@dataclass(frozen=True, kw_only=True)
class Route:
    """How a method of a service is called over HTTP, and which scope the caller needs."""

    method: str
    path: str
    scope: str
    audited: bool
    status: int
    function: Callable[..., Any]
    media: str = JSON
    served_by: str = ""
    at_hand: str = ""

    @functools.cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of the method, dataclasses spread into their fields."""
        hints, parameters = type_hints(self.function), list[Parameter]()
        for name, parameter in list(inspect.signature(self.function).parameters.items())[1:]:
            kind: Any = hints[name]
            if is_dataclass(kind):
                types = type_hints(hints[name])
                parameters += [
                    Parameter(name=field.name, kind=types[field.name], default=_default(field), of=name)
                    for field in fields(kind)
                ]
            else:
                parameters.append(Parameter(name=name, kind=kind, default=parameter.default))
        return tuple(parameters)

    @property
    def in_path(self) -> tuple[str, ...]:
        return tuple(_IN_PATH.findall(self.path))

    @property
    def has_body(self) -> bool:
        return self.method in ("POST", "PUT", "PATCH")

    # Any: the return annotation.
    @property
    def answer(self) -> Any:
        return type_hints(self.function)["return"]

    def arguments(self, given: dict[str, Any], texts: dict[str, Any]) -> dict[str, Any]:
        """The method's arguments from JSON values, and from texts of the path and the query string."""
        known = {parameter.name for parameter in self.parameters}
        if unknown := sorted((given.keys() | texts.keys()) - known):
            raise ArgumentInvalid(
                name=unknown[0], value="…", expected="only " + (", ".join(sorted(known)) or "nothing")
            )
        arguments: dict[str, Any] = {}
        spread: dict[str, dict[str, Any]] = {one.of: {} for one in self.parameters if one.of}
        for one in self.parameters:
            if one.name not in given and one.name not in texts:
                if one.is_required:
                    raise ArgumentInvalid(name=one.name, value=None, expected="a value")
                continue
            is_text = one.name in texts
            value = from_json(one.kind, texts[one.name] if is_text else given[one.name], name=one.name, text=is_text)
            (spread[one.of] if one.of else arguments)[one.name] = value
        for name, values in spread.items():
            arguments[name] = type_hints(self.function)[name](**values)
        return arguments

    def check(self, service: Service, given: dict[str, Any]) -> None:
        """Raise unless the caller has the scope of the route."""
        action, colon, topic = self.scope.partition(":")
        topic = topic.format(**_values(given))
        if action == "see":
            service.caller.require_sight(topic)
            return
        wanted = next(one for one in ACTIONS if one == ("read" if given.get("dry_run") is True else action))
        if colon:
            service.caller.require(wanted, topic)
        else:
            service.caller.require_somewhere(wanted)

    def audit(self, service: Service, given: dict[str, Any], status: int) -> None:
        """Record a call with its short arguments: larger ones may hold secrets, such as those of an alert's channel."""
        if service.host.audit is None:
            return
        parameters = inspect.signature(self.function).parameters
        others = [
            f"{name}={value}"
            for name, value in given.items()
            if name not in self.in_path and name != "wait_seconds"
            if isinstance(value, (str, int, float)) and value != parameters[name].default
        ]
        values = _values(given)
        service.host.audit.record(
            caller=service.caller,
            address=service.address,
            action=f"{self.function.__module__.rpartition('.')[2]}.{self.function.__name__}",
            target=" ".join(["/".join(str(values[name]) for name in self.in_path), *others]).strip(),
            status=status,
        )

    @contextlib.contextmanager
    def checked(self, service: Service, given: dict[str, Any]) -> Iterator[None]:
        """Check the scope, and audit the outcome of the block."""
        audited = self.audited and given.get("dry_run") is not True
        try:
            if self.scope:
                self.check(service, given)
            yield
        except HeadwaterError as error:
            if audited:
                self.audit(service, given, error.http_status)
            raise
        if audited:
            self.audit(service, given, 200)


class Service:
    """The base of all services: the log that they work on, and the caller."""

    #: Methods of the remote form that are no plain call; each has the connection as `self.connection`.
    # Any: methods of every signature.
    remote_methods: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __init__(self, host: Host, caller: Caller = LOCAL, *, address: str = "local") -> None:
        self.host = host
        self.caller = caller
        self.address = address

    @property
    def log(self) -> Log:
        return self.host.log

    @classmethod
    def routes(cls) -> dict[str, Route]:
        """The routes of this service, by the names of their methods."""
        routes = {name: getattr(getattr(cls, name), "route", None) for name in dir(cls)}
        return {name: route for name, route in routes.items() if route is not None}


def route(
    method: str,
    path: str,
    *,
    scope: str = "",
    audited: bool | None = None,
    status: int = 200,
    media: str = JSON,
    served_by: str = "",
    at_hand: str = "",
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Declare a method of a service as a route.

    `scope` is what the caller needs, with parameters in braces: `admin:{topic}`; `see:{topic}` is any scope for the topic,
    and `write` is that action on any topic. Without a scope the method itself checks `self.caller`, as one that lists only
    what the caller may see. With `dry_run=True` a call changes nothing: it needs `read` instead, and is not audited. Other
    calls that are no GET are audited, unless `audited` says otherwise.

    A method with another `media` type than JSON answers with text, and one that answers with bytes is sent as it is.
    `served_by` is a coroutine of the service that the server calls instead, with the same arguments; it calls the method.
    `at_hand` is a method that the server calls first, in its event loop: it answers without waiting for anything, or
    returns None. It checks the scope itself.
    """

    def declare(function: Callable[P, T]) -> Callable[P, T]:
        declared = Route(
            method=method,
            path=path,
            scope=scope,
            audited=method != "GET" if audited is None else audited,
            status=status,
            function=function,
            media=media,
            served_by=served_by,
            at_hand=at_hand,
        )
        signature = inspect.signature(function)

        def bound(args: Any, kwargs: Any) -> tuple[Service, dict[str, Any]]:
            arguments = signature.bind(*args, **kwargs)
            arguments.apply_defaults()
            given = dict(arguments.arguments)
            return given.pop("self"), given

        # Any: arguments and answers of every type.
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with declared.checked(*bound(args, kwargs)):
                return function(*args, **kwargs)

        @functools.wraps(function)
        async def call_in_loop(*args: Any, **kwargs: Any) -> Any:
            with declared.checked(*bound(args, kwargs)):
                return await function(*args, **kwargs)  # type: ignore[misc]  # a coroutine

        made: Any = call_in_loop if inspect.iscoroutinefunction(function) else call
        made.route = declared
        return made  # type: ignore[no-any-return]  # of the same signature

    return declare


# Any: a default of any type.
def _default(field: Field[Any]) -> Any:
    if field.default is MISSING and field.default_factory is MISSING:
        return inspect.Parameter.empty
    return field.default


def _values(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments by their names, and the fields of those that are dataclasses by theirs."""
    spread = {
        field.name: getattr(value, field.name)
        for value in given.values()
        if is_dataclass(value)
        for field in fields(value)
    }
    return {**spread, **given}
