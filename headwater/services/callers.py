"""Callers of services, and their scopes.

A scope is `read`, `write` or `admin`, and a pattern of topics. A call that is not about one topic needs a scope for `EVERY`
topic, and only the pattern `*` covers that, because more topics may be made later.

Producers and members of groups are known by their names: a second one with the same name replaces the first. So each
caller has names of its own, except those that a scope `name` shares with other callers.
"""

from __future__ import annotations

import hashlib
import os
import pwd
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, get_args

from headwater.errors import ArgumentInvalid, NotAllowed

#: What may be done with a topic.
Action = Literal["read", "write", "admin"]
ACTIONS: tuple[Action, ...] = get_args(Action)
#: The kind of a scope that is about names of producers and members.
NAME: Literal["name"] = "name"
#: In a request: all topics, also those that are made later. No topic can have this name.
EVERY = "*"


@dataclass(eq=False, kw_only=True)
class ScopeMissing(NotAllowed):
    """A token is valid, but lacks a scope that the call needs."""

    token: str
    scope: str
    problem = "Token {token!r} lacks the scope {scope!r}."
    remedy = "Make a token that has it: `headwater token create NAME --scope {scope}`."


@dataclass(frozen=True, kw_only=True)
class Scope:
    """An action that is allowed on the topics of a pattern; `admin` includes the other actions.

    `name` is not about topics: its pattern is that of names of producers and members shared with other tokens.

    Internal topics, whose names begin with two underscores, are covered by `admin:*` or by their own names.

    >>> scope = Scope.parse("read:orders.*")
    >>> scope.allows("read", "orders.eu"), scope.allows("write", "orders.eu"), scope.allows("read", "cards")
    (True, False, False)
    >>> Scope.parse("read:?").allows("read", EVERY), Scope.parse("read").allows("read", EVERY)
    (False, True)
    """

    action: Action | Literal["name"]
    pattern: str = EVERY

    @staticmethod
    def parse(text: str) -> Scope:
        action, _, pattern = text.partition(":")
        kind = next((one for one in (*ACTIONS, NAME) if one == action), None)
        if kind is None or (":" in text and not pattern):
            expected = (
                "read, write or admin and a pattern of topics, such as read:orders.*; or name and a pattern of names"
            )
            raise ArgumentInvalid(name="scope", value=text, expected=expected)
        return Scope(action=kind, pattern=pattern or EVERY)

    def allows(self, action: Action, topic: str) -> bool:
        if self.action not in (action, "admin"):
            return False
        if topic == EVERY:
            return self._covers_every
        if topic.startswith("__") and not self.pattern.startswith("__"):
            return self.action == "admin" and self._covers_every
        return fnmatchcase(topic, self.pattern)

    def shares(self, name: str) -> bool:
        """Whether a name of a producer or member is shared with other callers."""
        if self.action == NAME:
            return fnmatchcase(name, self.pattern)
        return self.action == "admin" and self._covers_every

    @property
    def _covers_every(self) -> bool:
        return not self.pattern.strip("*")

    def __str__(self) -> str:
        return f"{self.action}:{self.pattern}"


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who calls a service, and the scopes of that caller."""

    name: str
    scopes: tuple[Scope, ...]

    def may(self, action: Action, topic: str) -> bool:
        return any(scope.allows(action, topic) for scope in self.scopes)

    def sees(self, topic: str) -> bool:
        """Whether the caller may know that a topic exists, and what it is."""
        return any(self.may(action, topic) for action in ACTIONS)

    def own(self, name: str) -> str:
        """The name by which the log knows a producer or a member of this caller.

        It ends with a hash of the caller's name, so that the names of two callers never collide.

        >>> Caller(name="ada", scopes=()).own("loader")
        'loader.fdee430d40bd57de'
        >>> Caller(name="ada", scopes=(Scope.parse("name:load*"),)).own("loader")
        'loader'
        """
        if any(scope.shares(name) for scope in self.scopes):
            return name
        return f"{name}.{hashlib.sha256(self.name.encode()).hexdigest()[:16]}"

    def require(self, action: Action, topic: str) -> None:
        if not self.may(action, topic):
            raise ScopeMissing(token=self.name, scope=f"{action}:{topic}")

    def require_somewhere(self, action: Action) -> None:
        """Require a scope with this action, for any topic."""
        if not any(scope.action in (action, "admin") for scope in self.scopes):
            raise ScopeMissing(token=self.name, scope=f"{action}:*")

    def require_sight(self, topic: str) -> None:
        if not self.sees(topic):
            raise ScopeMissing(token=self.name, scope=f"read:{topic}")


#: A caller on this machine, while no token has been made.
LOCAL = Caller(name="local", scopes=(Scope(action="admin"),))
#: A caller of a path that needs no token.
ANONYMOUS = Caller(name="anonymous", scopes=())


def user_at_the_command_line() -> Caller:
    """The user of the operating system who runs a command on the log's own folder: that user may do everything."""
    return Caller(name=pwd.getpwuid(os.getuid()).pw_name, scopes=LOCAL.scopes)
