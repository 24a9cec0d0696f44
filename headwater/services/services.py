"""All services of one log, for one caller: on this machine, or over HTTP. Console and command line hold this value."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.services.alerts import Alerts
from headwater.services.callers import LOCAL, Caller
from headwater.services.captures import Captures
from headwater.services.dead_letters import DeadLetters
from headwater.services.entities import EntityService
from headwater.services.gateways import Gateways
from headwater.services.groups import Groups
from headwater.services.json_form import type_hints
from headwater.services.queries import Queries
from headwater.services.queues import Queues
from headwater.services.remote import remote
from headwater.services.route import Service
from headwater.services.rows import Rows
from headwater.services.schemas import Schemas
from headwater.services.sql import Sql
from headwater.services.syncs import Syncs
from headwater.services.tokens import TokenService
from headwater.services.topics import Topics
from headwater.services.views import Views

if TYPE_CHECKING:
    from headwater.apps.home import Home
    from headwater.log.remote.connection import Connection
    from headwater.services.host import Host


#: How long a process that runs an app may take to answer; a switch to another version takes longest.
ANSWER_SECONDS_MAX = 900.0


@dataclass(frozen=True, kw_only=True)
class Services:
    """One service per noun."""

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


#: The services by their names.
SERVICES: dict[str, type[Service]] = type_hints(Services)


def local(host: Host, caller: Caller = LOCAL, *, address: str = "local") -> Services:
    """The services of a log that this process has open."""
    return Services(**{name: kind(host, caller, address=address) for name, kind in SERVICES.items()})  # type: ignore[arg-type]  # each of the class that its field has


def remote_services(connection: Connection) -> Services:
    """The services of a log that a server has."""
    return Services(**{name: remote(kind)(connection) for name, kind in SERVICES.items()})  # type: ignore[arg-type]  # as above


@contextlib.contextmanager
def app_services(home: Home, *, seconds_max: float = ANSWER_SECONDS_MAX) -> Iterator[Services]:
    """The services of the process that runs an app, while the block runs."""
    with home.connected(seconds_max=seconds_max) as connection:
        yield remote_services(connection)
