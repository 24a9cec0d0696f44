"""Tokens, by which callers of a server authenticate. A token is shown once, when it is made.

    <log>/server/tokens.json     names, scopes, times and hashes; only its user may read it

A token reads `hw_<id>_<secret>`. The secret has 256 random bits, so its plain SHA-256 cannot be inverted, and a check takes
microseconds. The log's folder keeps only the hash.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import ClassVar

from headwater.clock import Clock, SystemClock
from headwater.errors import ArgumentInvalid, NotAllowed, NotFound
from headwater.filelock import LeaderLock
from headwater.log.errors import NameInvalid
from headwater.services.callers import ANONYMOUS, LOCAL, Caller, Scope
from headwater.services.route import LOCAL_ONLY, Service, route

#: The id has no underscore; the secret may.
_TOKEN = re.compile(r"hw_([0-9a-f]+)_([A-Za-z0-9_-]+)")
_SECRET_CHARACTERS_MIN = 43
_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@dataclass(eq=False, kw_only=True)
class TokenInvalid(NotAllowed):
    """A request has no token, or one that is wrong, expired or revoked."""

    why: str = "missing"
    http_status: ClassVar[int] = 401
    problem = "The token is {why}."
    remedy = "Send `Authorization: Bearer …` with a token that `headwater token create` has made."


@dataclass(frozen=True)
class TokenText:
    """The text of a token that was made elsewhere, such as a secret of a cluster. It is neither printed nor audited."""

    text: str = field(repr=False)

    def __post_init__(self) -> None:
        if (shape := _TOKEN.fullmatch(self.text)) is None or len(shape[2]) < _SECRET_CHARACTERS_MIN:
            expected = f"hw_, hexadecimal digits, _ and {_SECRET_CHARACTERS_MIN} or more of A-Z, a-z, 0-9, - and _"
            raise ArgumentInvalid(name="token", value="(not shown)", expected=expected)


@dataclass(frozen=True, kw_only=True)
class TokenInfo:
    """A token without its secret and its hash."""

    id: str
    name: str
    scopes: tuple[str, ...]
    created_us: int
    expires_us: int | None = None


@dataclass(frozen=True, kw_only=True)
class NewToken(TokenInfo):
    """A token that was just made, with its text."""

    token: str


@dataclass(frozen=True, kw_only=True)
class Token(TokenInfo):
    """A token as the log's folder keeps it: with the hash instead of the secret."""

    hash: str = field(repr=False)

    @property
    def caller(self) -> Caller:
        return Caller(name=self.name, scopes=tuple(Scope.parse(text) for text in self.scopes))

    @property
    def info(self) -> TokenInfo:
        return TokenInfo(**{one.name: getattr(self, one.name) for one in fields(TokenInfo)})


class Tokens:
    """The tokens of a log. Changes by other processes take effect with the next request."""

    def __init__(self, log: str | Path, *, clock: Clock | None = None) -> None:
        self._folder = Path(log) / "server"
        self._path = self._folder / "tokens.json"
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._known: dict[str, Token] = {}

    def create(
        self,
        name: str,
        scopes: Sequence[str] = ("admin:*",),
        *,
        seconds: float | None = None,
        given: TokenText | None = None,
    ) -> str:
        """Make a token and return its text, which cannot be shown again. A `given` one takes the place of the token of its name."""
        if not name or len(name) > 200 or not set(name) <= _CHARACTERS:
            raise NameInvalid(
                kind="token", name=name, why="it is empty or too long, or has a character that is not allowed"
            )
        if name in (LOCAL.name, ANONYMOUS.name):
            raise NameInvalid(kind="token", name=name, why="it is the name of callers without a token")
        if not scopes:
            raise ArgumentInvalid(name="scope", value=[], expected="at least one scope, such as read:orders.*")
        parsed = tuple(str(Scope.parse(text)) for text in scopes)
        text = f"hw_{secrets.token_hex(8)}_{secrets.token_urlsafe(32)}" if given is None else given.text
        _, identity, secret = text.split("_", 2)
        now_us = self._clock.now_us()
        with LeaderLock(self._folder / "lock").held():
            known = self._load()
            if given is not None:
                known = {other.id: other for other in known.values() if other.name != name}
            if identity in known:
                raise ArgumentInvalid(name="token", value="(not shown)", expected="a token that no other name has")
            if any(token.name == name for token in known.values()):
                raise ArgumentInvalid(name="name", value=name, expected="a name that no token has")
            expires = None if seconds is None else now_us + round(seconds * 1e6)
            known[identity] = Token(
                id=identity, name=name, scopes=parsed, created_us=now_us, expires_us=expires, hash=_hash(secret)
            )
            self._store(known)
        return text

    def list(self) -> list[Token]:
        """All tokens, oldest first."""
        return sorted(self._current().values(), key=lambda token: (token.created_us, token.name))

    def revoke(self, name: str) -> Token:
        """Revoke a token, by its name or its id: the next request with it is refused."""
        with LeaderLock(self._folder / "lock").held():
            known = self._load()
            found = next((token for token in known.values() if name in (token.name, token.id)), None)
            if found is None:
                raise NotFound(kind="token", name=name)
            del known[found.id]
            self._store(known)
        return found

    def __bool__(self) -> bool:
        return bool(self._current())

    def check(self, text: str) -> Caller:
        """The caller with this token; `TokenInvalid` if it is wrong, expired or revoked."""
        if not text:
            raise TokenInvalid
        shape = _TOKEN.fullmatch(text)
        identity, secret = shape.groups() if shape is not None else ("", "")
        found = self._current().get(identity)
        # Compared also if there is no such token, so that the time taken does not reveal whether there is one.
        same = hmac.compare_digest(_hash(secret).encode(), (found.hash if found else _hash("")).encode())
        if found is None or not same:
            raise TokenInvalid(why="wrong")
        if found.expires_us is not None and found.expires_us <= self._clock.now_us():
            raise TokenInvalid(why="expired")
        return found.caller

    def holder(self, identity: str) -> Caller | None:
        """The caller whose token has this id; None once it is revoked or has expired."""
        found = self._current().get(identity)
        if found is None or (found.expires_us is not None and found.expires_us <= self._clock.now_us()):
            return None
        return found.caller

    @staticmethod
    def id_of(text: str) -> str:
        """The id in a token, which may be kept; the secret may not.

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


class TokenService(Service):
    """Tokens of a log, for the user of its folder. None of this is reachable over HTTP."""

    @route(LOCAL_ONLY, "{name}", scope="admin:*")
    def create(
        self,
        name: str,
        scopes: tuple[str, ...] = ("admin:*",),
        *,
        seconds: float | None = None,
        given: TokenText | None = None,
    ) -> NewToken:
        """Make a token, or store a given one. Its text is in the answer, and nowhere else."""
        text = self._store.create(name, scopes, seconds=seconds, given=given)
        made = next(token for token in self._store.list() if token.name == name)
        return NewToken(token=text, **vars(made.info))

    @route(LOCAL_ONLY, "", scope="admin:*", audited=False)
    def list(self) -> list[TokenInfo]:
        """List all tokens, oldest first."""
        return [token.info for token in self._store.list()]

    @route(LOCAL_ONLY, "{name}", scope="admin:*")
    def revoke(self, name: str) -> TokenInfo:
        """Revoke a token, by its name or its id: the next request with it is refused."""
        return self._store.revoke(name).info

    @property
    def _store(self) -> Tokens:
        return Tokens(self.host.log.home, clock=self.host.log.clock)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
