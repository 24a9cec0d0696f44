"""One look at one page: who looks, what they may do, and in which colours."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from headwater.console.context import context
from headwater.console.history import TopicStatus
from headwater.log.port import Lag
from headwater.services.callers import Caller
from headwater.services.services import Services, local


@dataclass(frozen=True, kw_only=True)
class Visit:
    """Given to every screen as its first argument."""

    caller: Caller
    dark: bool = False

    def topics(self) -> list[TopicStatus]:
        """The topics that this visitor sees, as they were last measured."""
        return [one for one in context().history.topics.values() if self.caller.sees(one.name)]

    def lags(self, topic: str | None = None) -> list[Lag]:
        """The lag of groups in the topics that this visitor sees, or in one of them, as it was last measured."""
        return [lag for lag in context().history.lags if topic in (None, lag.topic) and self.caller.sees(lag.topic)]

    @cached_property
    def services(self) -> Services:
        """The services, for this visitor: scopes are checked and changes are audited by them."""
        return local(context().host, self.caller, address="console")
