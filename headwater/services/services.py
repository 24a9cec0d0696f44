"""All services of one log, for one caller: on this machine, or over HTTP. Console and command line hold this value."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from headwater.services.callers import LOCAL, Caller
from headwater.services.remote import remote
from headwater.services.route import Service

if TYPE_CHECKING:
    from headwater.apps.home import Home
    from headwater.log.remote.connection import Connection
    from headwater.services.alerts import Alerts
    from headwater.services.captures import Captures
    from headwater.services.dead_letters import DeadLetters
    from headwater.services.entities import EntityService
    from headwater.services.gateways import Gateways
    from headwater.services.groups import Groups
    from headwater.services.host import Host
    from headwater.services.queries import Queries
    from headwater.services.queues import Queues
    from headwater.services.rows import Rows
    from headwater.services.schemas import Schemas
    from headwater.services.sql import Sql
    from headwater.services.syncs import Syncs
    from headwater.services.tokens import TokenService
    from headwater.services.topics import Topics
    from headwater.services.views import Views


#: How long a process that runs an app may take to answer; a switch to another version takes longest.
ANSWER_SECONDS_MAX = 900.0


#: The class of each service, in the module of its name. None is loaded before it is used: all of them are hundreds of modules.
_CLASSES = {
    "alerts": "Alerts",
    "captures": "Captures",
    "dead_letters": "DeadLetters",
    "entities": "EntityService",
    "gateways": "Gateways",
    "groups": "Groups",
    "queries": "Queries",
    "queues": "Queues",
    "rows": "Rows",
    "schemas": "Schemas",
    "sql": "Sql",
    "syncs": "Syncs",
    "tokens": "TokenService",
    "topics": "Topics",
    "views": "Views",
}


class Services:
    """One service per noun, made when it is first asked for."""

    if TYPE_CHECKING:
        alerts: Alerts
        captures: Captures
        dead_letters: DeadLetters
        entities: EntityService
        gateways: Gateways
        groups: Groups
        queries: Queries
        queues: Queues
        rows: Rows
        schemas: Schemas
        sql: Sql
        syncs: Syncs
        tokens: TokenService
        topics: Topics
        views: Views

    def __init__(self, make: Callable[[type[Service]], object]) -> None:
        self._make = make

    if not TYPE_CHECKING:  # else every name would be a service

        def __getattr__(self, name: str) -> object:
            if name not in _CLASSES:
                raise AttributeError(name)
            # Of two threads that ask at once, both get the service of the first.
            return self.__dict__.setdefault(name, self._make(_service(name)))


def service_classes() -> dict[str, type[Service]]:
    """The classes of all services by their names."""
    return {name: _service(name) for name in _CLASSES}


def _service(name: str) -> type[Service]:
    kind: type[Service] = getattr(importlib.import_module(f"headwater.services.{name}"), _CLASSES[name])
    return kind


def local(host: Host, caller: Caller = LOCAL, *, address: str = "local") -> Services:
    """The services of a log that this process has open."""
    return Services(lambda kind: kind(host, caller, address=address))


def remote_services(connection: Connection) -> Services:
    """The services of a log that a server has."""
    return Services(lambda kind: remote(kind)(connection))  # type: ignore[arg-type]  # a class can be hashed


@contextlib.contextmanager
def app_services(home: Home, *, seconds_max: float = ANSWER_SECONDS_MAX) -> Iterator[Services]:
    """The services of the process that runs an app, while the block runs."""
    with home.connected(seconds_max=seconds_max) as connection:
        yield remote_services(connection)
