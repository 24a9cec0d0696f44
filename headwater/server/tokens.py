"""Tokens: who may do what. A token is shown once, when it is made; the log's folder keeps only its hash.

    <log>/server/tokens.json     names, scopes, times and hashes; only its user may read it

A token reads `hw_<id>_<secret>`. The secret has 256 random bits, so that a plain SHA-256 of it cannot be guessed back,
and checking it costs a request next to nothing. A scope is `read`, `write` or `admin`, and a pattern of topics.

Producers and members of groups have names that say who they are: whoever uses the name of another takes its place. So a
token has names of its own, which others cannot use, unless a scope `name` says which it shares with them.

A request that is not about one topic asks for `EVERY` topic, and only a scope whose pattern is `*` covers that: there is
no telling which topics are going to be made.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, get_args

from headwater.clock import Clock, SystemClock
from headwater.errors import ArgumentInvalid, NameInvalid, ScopeMissing, TokenInvalid, TokenNotFound

#: What may be done with a topic.
Action = Literal["read", "write", "admin"]
ACTIONS: tuple[Action, ...] = get_args(Action)
#: The kind of a scope that is about names of producers and members.
NAME: Literal["name"] = "name"
#: In a request: all topics, also those that are made later. No topic can have this name.
EVERY = "*"
#: The id has no underscore; the secret may.
_TOKEN = re.compile(r"hw_([0-9a-f]+)_([A-Za-z0-9_-]+)")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What may be done with the topics of a pattern; `admin` includes the others.

    `name` is not about topics: it says which names of producers and members a token shares with others.

    Topics of our own, whose names begin with two underscores, are covered by `admin:*` or by their names.

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
        """Whether a name of a producer or member means the same here as to others."""
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
    """Who has sent a request, and what they may do."""

    name: str
    scopes: tuple[Scope, ...]

    def may(self, action: Action, topic: str) -> bool:
        return any(scope.allows(action, topic) for scope in self.scopes)

    def sees(self, topic: str) -> bool:
        """Whether the caller may know that a topic exists, and what it is."""
        return any(self.may(action, topic) for action in ACTIONS)

    def own(self, name: str) -> str:
        """The name by which the log knows a producer or a member of this caller.

        It ends with who the caller is, in so many letters, so that no two callers can come to the same one.

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
        """For what is not about one topic: any scope of this kind will do."""
        if not any(scope.action in (action, "admin") for scope in self.scopes):
            raise ScopeMissing(token=self.name, scope=f"{action}:*")

    def require_sight(self, topic: str) -> None:
        if not self.sees(topic):
            raise ScopeMissing(token=self.name, scope=f"read:{topic}")


#: Whoever reaches a server on this machine that no token was made for.
LOCAL = Caller(name="local", scopes=(Scope(action="admin"),))
#: Whoever asks for a path that is open to all.
ANYBODY = Caller(name="anybody", scopes=())


@dataclass(frozen=True, kw_only=True)
class Token:
    """A token as it is kept: everything but its secret."""

    id: str
    name: str
    scopes: tuple[str, ...]
    created_us: int
    expires_us: int | None = None
    hash: str = field(repr=False)

    @property
    def caller(self) -> Caller:
        return Caller(name=self.name, scopes=tuple(Scope.parse(text) for text in self.scopes))


class Tokens:
    """The tokens of a log. What another process changes is seen by the next request."""

    def __init__(self, log: str | Path, *, clock: Clock | None = None) -> None:
        self._folder = Path(log) / "server"
        self._path = self._folder / "tokens.json"
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._known: dict[str, Token] = {}

    def create(self, name: str, scopes: Sequence[str] = ("admin:*",), *, seconds: float | None = None) -> str:
        """Make a token, and give its text: nobody can show it again."""
        if not name or len(name) > 200 or not set(name) <= _LETTERS:
            raise NameInvalid(kind="token", name=name, why="it has a letter that is not allowed, or none at all")
        if name in (LOCAL.name, ANYBODY.name):
            raise NameInvalid(kind="token", name=name, why="it means those who have no token")
        if not scopes:
            raise ArgumentInvalid(name="scope", value=[], expected="at least one scope, such as read:orders.*")
        parsed = tuple(str(Scope.parse(text)) for text in scopes)
        identity, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        now_us = self._clock.now_us()
        with self._exclusive():
            known = self._load()
            if any(token.name == name for token in known.values()):
                raise ArgumentInvalid(name="name", value=name, expected="a name that no token has")
            expires = None if seconds is None else now_us + round(seconds * 1e6)
            known[identity] = Token(
                id=identity, name=name, scopes=parsed, created_us=now_us, expires_us=expires, hash=_hash(secret)
            )
            self._store(known)
        return f"hw_{identity}_{secret}"

    def list(self) -> list[Token]:
        """All tokens, oldest first."""
        return sorted(self._current().values(), key=lambda token: (token.created_us, token.name))

    def revoke(self, name: str) -> Token:
        """Forget a token, by its name or its id: from the next request on it is worth nothing."""
        with self._exclusive():
            known = self._load()
            found = next((token for token in known.values() if name in (token.name, token.id)), None)
            if found is None:
                raise TokenNotFound(token=name)
            del known[found.id]
            self._store(known)
        return found

    def __bool__(self) -> bool:
        return bool(self._current())

    def check(self, text: str) -> Caller:
        """Who has this token; `TokenInvalid` for one that is wrong, expired or revoked."""
        if not text:
            raise TokenInvalid
        shape = _TOKEN.fullmatch(text)
        identity, secret = shape.groups() if shape is not None else ("", "")
        found = self._current().get(identity)
        # Compared also where there is no such token, so that the time taken tells nothing.
        same = hmac.compare_digest(_hash(secret).encode(), (found.hash if found else _hash("")).encode())
        if found is None or not same:
            raise TokenInvalid(why="wrong")
        if found.expires_us is not None and found.expires_us <= self._clock.now_us():
            raise TokenInvalid(why="expired")
        return found.caller

    def holder(self, identity: str) -> Caller | None:
        """Who has the token of this id; None once it is revoked or has expired."""
        found = self._current().get(identity)
        if found is None or (found.expires_us is not None and found.expires_us <= self._clock.now_us()):
            return None
        return found.caller

    @staticmethod
    def id_of(text: str) -> str:
        """The part of a token that may be remembered: who it is, without the secret.

        >>> Tokens.id_of("hw_0123456789abcdef_secret")
        '0123456789abcdef'
        """
        shape = _TOKEN.fullmatch(text)
        return shape[1] if shape is not None else ""

    # -- the file -----------------------------------------------------------------------------------------------------

    def _current(self) -> dict[str, Token]:
        with self._lock:
            signature = self._signature()
            if signature != self._seen:
                self._known, self._seen = self._load(), signature
            return self._known

    def _signature(self) -> tuple[int, int, int] | None:
        try:
            stat = os.stat(self._path)
        except FileNotFoundError:
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def _load(self) -> dict[str, Token]:
        try:
            body = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return {one["id"]: Token(**{**one, "scopes": tuple(one["scopes"])}) for one in body["tokens"]}

    def _store(self, known: dict[str, Token]) -> None:
        temporary = self._folder / f".tokens.{os.getpid()}.tmp"
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"format": 1, "tokens": [asdict(token) for token in known.values()]}, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path)

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
