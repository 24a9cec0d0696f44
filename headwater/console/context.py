"""What all pages share: the log, recent measurements, sessions; and what one visit knows: the caller and the services."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.console.history import History, TopicStatus
from headwater.http.errors import TooManyRequests
from headwater.http.guard import Buckets
from headwater.log.port import Lag
from headwater.services.audit import Audit
from headwater.services.callers import LOCAL, Caller
from headwater.services.host import ExpiringCache
from headwater.services.queries import is_visible
from headwater.services.services import Services, local
from headwater.services.tokens import TokenInvalid, Tokens
from headwater.units import DAY

if TYPE_CHECKING:
    from headwater.apps.status import QueryStatus
    from headwater.log import Log
    from headwater.services.host import Host

T = TypeVar("T")
SESSIONS_MAX = 1_000


@dataclass(kw_only=True)
class Context:
    """What the pages of one console share."""

    host: Host
    tokens: Tokens
    guarded: bool
    history: History
    audit: Audit | None
    #: The id of the token that each visitor has logged in with, by the id in the visitor's cookie.
    sessions: ExpiringCache[str] = field(default_factory=lambda: ExpiringCache(count_max=SESSIONS_MAX, seconds_max=DAY))
    #: Values that a screen shares between its visitors, by name. Any: each screen has its own types.
    shared: dict[str, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _failures: Buckets = field(init=False)

    def __post_init__(self) -> None:
        per_minute = self.host.settings.failures_per_minute_max
        self._failures = Buckets(per_minute / 60, burst=per_minute)

    @property
    def log(self) -> Log:
        return self.host.log

    @cached_property
    def services(self) -> Services:
        """The services with all rights, for what visitors share. A page shows its visitor only what their scopes allow."""
        return local(self.host, address="console")

    @property
    def is_starting(self) -> bool:
        """Whether this process runs an app whose Spark session is not up yet."""
        return self.host.runner is not None and self.host.runner.spark is None

    def caller(self, visitor: str) -> Caller | None:
        """The caller of a visitor; None if the visitor must log in (again). Tokens are checked each time."""
        # Once the log has had a token, every visitor needs one: revoking the last token must not open the console.
        self.guarded = self.guarded or bool(self.tokens)
        if not self.guarded:
            return LOCAL
        token = self.sessions.get(visitor)
        return None if token is None else self.tokens.holder(token)

    def log_in(self, visitor: str, text: str, *, address: str) -> Caller:
        """Start a session for a visitor with a valid token; limit the rate of invalid tokens by address."""
        try:
            caller = self.tokens.check(text)
        except TokenInvalid:
            if seconds := self._failures.wait_seconds(address):
                raise TooManyRequests(seconds=seconds) from None
            raise
        self.sessions.put(visitor, self.tokens.id_of(text))
        return caller

    def log_out(self, visitor: str) -> None:
        self.sessions.pop(visitor)

    def share(self, name: str, make: Callable[[], T]) -> T:
        """A value that all visitors of a screen share; made at the first call."""
        with self._lock:
            if name not in self.shared:
                self.shared[name] = make()
            value: T = self.shared[name]
            return value

    def audit_change(self, caller: Caller, action: str, target: str) -> None:
        """Record a change in the audit topic, as the server does for requests."""
        if self.audit is not None:
            self.audit.record(caller=caller, address="console", action=action, target=target, status=200)


_current: Context | None = None


def use(context: Context) -> None:
    """Set the context of this process. NiceGUI has one set of pages per process, so there is one context."""
    global _current
    _current = context


def context() -> Context:
    """The context of the console that this process serves."""
    if _current is None:
        raise RuntimeError("no console is mounted in this process")
    return _current


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One visit to one page: the first argument of every screen."""

    caller: Caller
    dark: bool = False

    def topics(self) -> list[TopicStatus]:
        """The topics that the caller sees, as they were last measured."""
        return [topic for topic in context().history.topics.values() if self.caller.sees(topic.name)]

    def lags(self, topic: str | None = None) -> list[Lag]:
        """The lag of groups in the topics that the caller sees, or in one of them, as it was last measured."""
        return [lag for lag in context().history.lags if topic in (None, lag.topic) and self.caller.sees(lag.topic)]

    def queries(self) -> list[QueryStatus]:
        """The queries that the caller sees, as they were last measured."""
        return [status for status in context().history.statuses if is_visible(status, self.caller)]

    @cached_property
    def services(self) -> Services:
        """The services with the caller's rights: they check scopes and audit changes."""
        return local(context().host, self.caller, address="console")
