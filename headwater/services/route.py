"""The base of services and the declaration of their routes. Scopes are checked and changes are audited here.

    class Groups(Service):
        @route("POST", "/groups/{group}/seek", scope="admin:{topic}")
        def seek(self, group: str, topic: str, to: str, *, dry_run: bool = False) -> list[SeekStep]:
            '''Move a consumer group's committed offsets.'''

The HTTP route, its entry in the OpenAPI document and the remote service follow from this one signature: parameters in the
path are taken from the path, others from the query string of a GET or DELETE and from the body of a POST, PUT or PATCH. A
parameter that is a dataclass is spread: its fields stand beside the others, and one of them may be in the path.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar

from headwater.errors import ArgumentInvalid, HeadwaterError
from headwater.services.callers import ACTIONS, LOCAL, Caller
from headwater.services.json_form import from_json, type_hints

if TYPE_CHECKING:
    from headwater.log.port import Log
    from headwater.services.host import Host

P = ParamSpec("P")
T = TypeVar("T")
_IN_PATH = re.compile(r"{(\w+)}")
#: Instead of an HTTP method: what only the user of the log's folder may call. The path then only names what is audited.
LOCAL_ONLY = ""


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
    """How a method of a service is reached over HTTP, and who may call it."""

    method: str
    path: str
    scope: str
    audited: bool
    status: int
    function: Callable[..., Any]
    media: str = "application/json"

    @functools.cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """What the method takes, dataclasses spread into their fields."""
        hints, found = type_hints(self.function), list[Parameter]()
        for name, parameter in list(inspect.signature(self.function).parameters.items())[1:]:
            kind: Any = hints[name]
            if is_dataclass(kind):
                spread = type_hints(hints[name])
                found += [
                    Parameter(name=one.name, kind=spread[one.name], default=_default(one), of=name)
                    for one in fields(kind)
                ]
            else:
                found.append(Parameter(name=name, kind=kind, default=parameter.default))
        return tuple(found)

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
        """The method's arguments from JSON values and from texts of the path and the query string."""
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


class Service:
    """The base of all services: which log they work on, and who asks."""

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
        found = {name: getattr(getattr(cls, name), "route", None) for name in dir(cls)}
        return {name: route for name, route in found.items() if route is not None}


def route(
    method: str,
    path: str,
    *,
    scope: str = "",
    audited: bool | None = None,
    status: int = 200,
    media: str = "application/json",
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Declare a method of a service as a route.

    `scope` is what the caller needs, with parameters in braces: `admin:{topic}`. Without one the method itself looks at
    `self.caller`, as one that lists only what the caller may see. With `dry_run=True` a call changes nothing: it needs
    `read` instead, and is not audited. Other calls that are no GET are audited, unless `audited` says otherwise. A method
    with another `media` type than JSON answers with text, which is sent as it is.
    """

    def declare(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)
        changes = method != "GET" if audited is None else audited

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = dict(bound.arguments)
            service: Service = given.pop("self")
            dry = given.get("dry_run") is True
            try:
                if scope:
                    action, _, topic = scope.partition(":")
                    wanted = "read" if dry else action
                    topic = topic.format(**_values(given))
                    service.caller.require(next(one for one in ACTIONS if one == wanted), topic)
                answer = function(*args, **kwargs)
            except HeadwaterError as error:
                if changes and not dry:
                    audit(service, given, error.http_status)
                raise
            if changes and not dry:
                audit(service, given, 200)
            return answer

        def audit(service: Service, given: dict[str, Any], status: int) -> None:
            if service.host.audit is not None:
                in_path = _IN_PATH.findall(path)
                # What else was asked for, if it is short: larger values may hold secrets, such as those of an alert's channel.
                others = [
                    f"{name}={given[name]}"
                    for name, parameter in signature.parameters.items()
                    if name in given and name not in in_path and name != "wait_seconds"
                    if isinstance(given[name], (str, int, float)) and given[name] != parameter.default
                ]
                values = _values(given)
                target = " ".join(["/".join(str(values[name]) for name in in_path), *others]).strip()
                noun = function.__module__.rpartition(".")[2]
                service.host.audit.record(
                    caller=service.caller,
                    address=service.address,
                    action=f"{noun}.{function.__name__}",
                    target=target,
                    status=status,
                )

        call.route = Route(  # type: ignore[attr-defined]  # read by `Service.routes`
            method=method, path=path, scope=scope, audited=changes, status=status, function=function, media=media
        )
        return call

    return declare


# Any: a default of any type.
def _default(field: Field[Any]) -> Any:
    if field.default is MISSING and field.default_factory is MISSING:
        return inspect.Parameter.empty
    return field.default


def _values(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments by their names, and the fields of those that are dataclasses by theirs."""
    spread = {
        one.name: getattr(value, one.name) for value in given.values() if is_dataclass(value) for one in fields(value)
    }
    return {**spread, **given}
