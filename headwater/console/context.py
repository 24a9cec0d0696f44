"""What every page knows: the log, the apps on it, what was measured of late, and who looks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.console.history import History
from headwater.http.errors import TooManyRequests
from headwater.http.guard import Buckets
from headwater.services.audit import Audit
from headwater.services.callers import LOCAL, Caller
from headwater.services.host import ExpiringCache
from headwater.services.services import Services, local
from headwater.services.tokens import TokenInvalid, Tokens
from headwater.units import DAY

if TYPE_CHECKING:
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
    #: The id of the token that each visitor has logged in with, by the id in their cookie.
    sessions: ExpiringCache[str] = field(default_factory=lambda: ExpiringCache(count_max=SESSIONS_MAX, seconds_max=DAY))
    #: Whatever a screen wants to share between its visitors, by its own name. Any: each screen has its own.
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
        """The services for what all visitors share, which sees everything. Pages show a visitor only their part of it."""
        return local(self.host, address="console")

    @property
    def is_starting(self) -> bool:
        """Whether this process runs an app whose Spark session is not up yet."""
        return self.host.runner is not None and self.host.runner.spark is None

    def caller(self, visitor: str) -> Caller | None:
        """Who looks; None for somebody who must log in first, or again: tokens are looked at each time."""
        # Once asked for, tokens stay asked for: whoever revokes the last one does not mean to let everybody in.
        self.guarded = self.guarded or bool(self.tokens)
        if not self.guarded:
            return LOCAL
        token = self.sessions.get(visitor)
        return None if token is None else self.tokens.holder(token)

    def log_in(self, visitor: str, text: str, *, address: str) -> Caller:
        """Remember a visitor who has shown a good token; whoever shows many wrong ones must wait."""
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
        """What all visitors of a screen have in common, made when the first of them comes."""
        with self._lock:
            if name not in self.shared:
                self.shared[name] = make()
            found: T = self.shared[name]
            return found

    def note(self, caller: Caller, action: str, target: str) -> None:
        """Write down that somebody has changed something, as the server does for requests."""
        if self.audit is not None:
            self.audit.record(caller=caller, address="console", action=action, target=target, status=200)


_current: Context | None = None


def use(context: Context) -> None:
    """The console that this process serves. NiceGUI knows one set of pages per process, so there is one context."""
    global _current
    _current = context


def context() -> Context:
    """What this console shows."""
    if _current is None:
        raise RuntimeError("no console is mounted in this process")
    return _current
