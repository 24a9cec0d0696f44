"""A client of a schema registry with Confluent's HTTP API: it registers schemas and reads them by their numbers.

A number never changes its schema, so that both are kept for ever: once a schema is known, a registry that is away stops
nothing. Until then the client tries again with growing pauses, up to a deadline.
"""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from headwater.errors import LogError, UsageError

MEDIA = "application/vnd.schemaregistry.v1+json"
#: How long the client tries again while the registry does not answer.
SECONDS_MAX = 20.0
_ANSWER_SECONDS_MAX = 10.0
_PAUSE_SECONDS = 0.1
_PAUSE_SECONDS_MAX = 2.0


@dataclass(eq=False, kw_only=True)
class RegistryUnavailable(LogError):
    """A schema registry does not answer."""

    address: str
    why: str
    http_status: ClassVar[int] = 503
    problem = "The schema registry at {address} does not answer: {why}."
    remedy = "Start it, or correct its address; nothing was sent. Values whose schemas are known are read without it."


@dataclass(eq=False, kw_only=True)
class RegistryRefused(UsageError):
    """A schema registry refuses a request."""

    address: str
    code: int
    why: str
    problem = "The schema registry at {address} refuses the request (code {code}): {why}."
    remedy = "Change the schema so that it is compatible with its subject, or the subject's level or rights."


class Registry:
    """Registers schemas, and reads them by their numbers. Threads may share one.

    Subjects begin with `prefix`, so that they have the names of topics on Kafka, as other clients expect.
    """

    def __init__(
        self, address: str, *, token: str | None = None, prefix: str = "", seconds_max: float = SECONDS_MAX
    ) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RegistryRefused(address=address, code=0, why="the address is not http://… or https://…")
        self._authorization = None if token is None else f"Bearer {token}"
        if parts.username:
            name, password = unquote(parts.username), unquote(parts.password or "")
            self._authorization = f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"
        host = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
        #: Without a password, so that it can stand in errors.
        self.address = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._prefix = prefix
        self._seconds_max = seconds_max
        self._lock = threading.Lock()
        self._numbers: dict[tuple[str, str], int] = {}
        self._texts: dict[int, str] = {}

    def register(self, subject: str, schema: str, *, kind: str = "AVRO") -> int:
        """The number of a schema, which is registered under the subject unless it is there."""
        known = self._numbers.get((subject, schema))
        if known is not None:
            return known
        body: dict[str, Any] = {"schema": schema} if kind == "AVRO" else {"schema": schema, "schemaType": kind}
        answer = self._ask(f"/subjects/{quote(self._prefix + subject, safe='')}/versions", body)
        number = int(answer["id"])
        with self._lock:
            self._numbers[subject, schema] = number
        return number

    def schema(self, number: int) -> str | None:
        """The schema that has a number; None if there is none."""
        known = self._texts.get(number)
        if known is not None:
            return known
        try:
            text = str(self._ask(f"/schemas/ids/{number}")["schema"])
        except RegistryRefused as error:
            if error.code // 100 in (404, 4):
                return None
            raise
        with self._lock:
            self._texts[number] = text
        return text

    # Any: JSON.
    def _ask(self, path: str, body: Any = None) -> Any:
        """Send a request, again with growing pauses while there is no answer."""
        deadline, pause = time.monotonic() + self._seconds_max, _PAUSE_SECONDS
        while True:
            try:
                return self._ask_once(path, body)
            except RegistryUnavailable:
                if time.monotonic() + pause >= deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    def _ask_once(self, path: str, body: Any) -> Any:
        headers = {"Accept": f"{MEDIA}, application/json", "Content-Type": MEDIA}
        if self._authorization is not None:
            headers["Authorization"] = self._authorization
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS_MAX) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode("utf-8", "replace")
            if error.code >= 500:
                raise RegistryUnavailable(address=self.address, why=f"status {error.code}") from error
            code, why = error.code, text[:300]
            try:
                told = json.loads(text)
                code, why = int(told["error_code"]), str(told["message"])
            except (ValueError, KeyError, TypeError):
                pass
            raise RegistryRefused(address=self.address, code=code, why=why.rstrip(".")) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RegistryUnavailable(address=self.address, why=str(error)) from error
