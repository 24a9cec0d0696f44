"""A view that another process maintains: the same methods as `View`, over its server."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import orjson
import pyarrow as pa

from headwater.errors import HeadwaterError, NotFound
from headwater.log.errors import ServerUnreachable
from headwater.log.remote.connection import Connection
from headwater.log.remote.wire import ARROW
from headwater.schema import encodings, parse_schema, to_batches
from headwater.views.spec import Change, ViewPosition, ViewSpec
from headwater.views.store import Parameters
from headwater.views.view import TIMEOUT_SECONDS, AtLeast, Row, Where, equalities, key_batch
from headwater.views.wire import arrow_table, packed, packed_row, row_text

_CHANGES_MAX = 10_000
_RETRY_SECONDS = 0.2
#: A little longer than a server lets a statement take, so that its caller hears how it ended.
_STATEMENT_SECONDS_MAX = 75.0
#: A server sends a comment more often than this while nothing changes.
_SILENCE_SECONDS_MAX = 60.0
_ATTEMPTS_MAX = 10


class RemoteView:
    """A view of a running app, from another process: `RemoteView("spend", address="http://127.0.0.1:…", token="…")`."""

    def __init__(
        self,
        name: str,
        *,
        address: str = "",
        token: str = "",
        app: str | None = None,
        connection: Connection | None = None,
    ) -> None:
        """`app` says whose view it is, where the server of a log has several of this name.

        A `connection` is used instead of an address, and is left open by `close`.
        """
        self.name = name
        self._app = app
        self._owned = connection is None
        self._connection = connection or Connection(address, token=token)

    def __repr__(self) -> str:
        return f"RemoteView({self.name!r})"

    def close(self) -> None:
        if self._owned:
            self._connection.close()

    @property
    def _path(self) -> str:
        return f"/views/{quote(self.name, safe='')}"

    @cached_property
    def spec(self) -> ViewSpec:
        """How the view is declared."""
        body = self.describe()
        return ViewSpec(
            name=body["name"],
            topic=body["topic"],
            key=tuple(body["key"]),
            schema=parse_schema(body["schema"]),
            version=body["version"],
            producers=tuple(body["producers"]),
        )

    @property
    def position(self) -> ViewPosition:
        """How far the view has come in its changelog and in its sources."""
        body = self.describe()
        return ViewPosition.from_json(orjson.dumps(body))

    @property
    def freshness(self) -> float:
        """For how many seconds the oldest change that is not applied yet has been waiting; 0 where there is none."""
        return float(self.describe()["freshness"])

    def describe(self) -> dict[str, Any]:
        """What there is to know of the view, as plain values."""
        body: dict[str, Any] = self._connection.get(self._path, app=self._app)
        return body

    def get(
        self,
        key: Mapping[str, Any] | None = None,
        *,
        at_least: AtLeast | None = None,
        timeout: float | None = None,
        **columns: Any,
    ) -> Row | None:
        """The row with this key, None where there is none."""
        asked = packed_row(key_batch(self.spec, {**(key or {}), **columns}))
        table = self._table(f"{self._path}/get", {"key": asked}, at_least, timeout)
        rows: list[Row] = table.to_pylist(maps_as_pydicts="strict")
        return rows[0] if rows else None

    def table(
        self,
        where: Where = None,
        *,
        parameters: Parameters = None,
        limit: int | None = None,
        at_least: AtLeast | None = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """The rows as an Arrow table; see `rows`."""
        if isinstance(where, Mapping):
            where, parameters = equalities(self.spec, where)
        body = {"where": where, "parameters": packed(parameters), "limit": limit}
        return self._table(f"{self._path}/rows", body, at_least, timeout)

    def rows(
        self,
        where: Where = None,
        *,
        parameters: Parameters = None,
        limit: int | None = None,
        at_least: AtLeast | None = None,
        timeout: float | None = None,
    ) -> list[Row]:
        """The rows, or those that fit: `where` is a condition in SQL, or a mapping of columns to values."""
        found = self.table(where, parameters=parameters, limit=limit, at_least=at_least, timeout=timeout)
        rows: list[Row] = found.to_pylist(maps_as_pydicts="strict")
        return rows

    def sql(
        self,
        statement: str,
        parameters: Parameters = None,
        *,
        at_least: AtLeast | None = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """The result of one SELECT over this view and any other of the same app, by their names."""
        body = {"sql": statement, "parameters": packed(parameters), "view": self.name}
        return self._table("/sql", body, at_least, timeout)

    def subscribe(self, start: ViewPosition | str | None = None) -> RemoteSubscription:
        """All rows, then each change as it is applied; from the `position` of an earlier subscription, only changes."""
        return RemoteSubscription(self._connection, self.spec, start, app=self._app)

    def live(self, *, seconds: float = 30.0, rows_max: int = 20, order: str | None = None) -> None:
        """In a notebook: show the view, and show it again in the same output as it changes.

        It stops after so many seconds, or when it is interrupted. `order` says which rows come first, as in SQL:
        `view.live(order="minute DESC")`; that looks at all rows of the view for each picture.
        """
        from headwater.views.notebook_card import live

        live(self, seconds=seconds, rows_max=rows_max, order=order, position=self.position)

    def _repr_html_(self) -> str:
        from headwater.views.notebook_card import view_html

        return view_html(self)

    def _table(self, path: str, body: dict[str, Any], at_least: AtLeast | None, timeout: float | None) -> pa.Table:
        if at_least:
            body["at_least"] = {topic: {str(p): o for p, o in offsets.items()} for topic, offsets in at_least.items()}
            body["timeout"] = TIMEOUT_SECONDS if timeout is None else timeout
        response = self._connection.ask(
            "POST",
            path,
            parameters={"app": self._app},
            json=body,
            headers={"Accept": ARROW},
            wait_seconds=_STATEMENT_SECONDS_MAX + body.get("timeout", 0.0),
        )
        return arrow_table(response.content)


class RemoteSubscription:
    """An iterator of `Change`s that come over HTTP. A lost connection is taken up again where it was."""

    def __init__(
        self, connection: Connection, spec: ViewSpec, start: ViewPosition | str | None, *, app: str | None = None
    ) -> None:
        self._connection = connection
        self._app = {} if app is None else {"app": app}
        self._spec = spec
        self._last = start.to_json() if isinstance(start, ViewPosition) else start
        self._position = ViewPosition.from_json(self._last) if self._last else None
        self._queue: queue.Queue[tuple[Change | None, str | None] | Exception] = queue.Queue(maxsize=_CHANGES_MAX)
        self._closed = threading.Event()
        self._told = False
        self._thread = threading.Thread(target=self._read, name="headwater-subscription", daemon=True)
        self._thread.start()

    @property
    def position(self) -> ViewPosition | None:
        """What has been told so far; None until all rows that were there at the beginning have been."""
        return self._position

    def __iter__(self) -> Iterator[Change]:
        return self

    def __next__(self) -> Change:
        found = self.next()
        if found is None:
            raise StopIteration
        return found

    def next(self, *, timeout: float | None = None) -> Change | None:
        """The next change; None after so many seconds without one, or when the subscription was closed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._closed.is_set():
            try:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                item = self._queue.get(timeout=left) if left != 0.0 else self._queue.get_nowait()
            except queue.Empty:
                return None
            if isinstance(item, Exception):
                self._closed.set()
                raise item
            change, position = item
            if position is not None:
                self._position = ViewPosition.from_json(position)
            if change is not None:
                return change
        return None

    def close(self) -> None:
        """End the subscription, also for a thread that waits in it."""
        self._closed.set()
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait((None, None))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> None:
        attempts = 0
        while not self._closed.is_set():
            try:
                for _ in self._events():
                    attempts = 0
            except HeadwaterError as error:
                self._put(error)
                return
            # Whatever the network does: the next attempt goes on behind what was told.
            except Exception as error:
                attempts += 1
                if attempts >= _ATTEMPTS_MAX:
                    self._put(ServerUnreachable(address=self._connection.address, why=str(error)))
                    return
            self._closed.wait(_RETRY_SECONDS)
            if self._told and self._last is None:
                self._put((Change(op="reset", row={}), None))  # cut off among the first rows: they come again

    def _events(self) -> Iterator[None]:
        headers = {"Last-Event-ID": self._last} if self._last else {}
        path = f"/views/{quote(self._spec.name, safe='')}/subscribe"
        with self._connection.stream(
            path, params=self._app, headers=headers, silence_seconds_max=_SILENCE_SECONDS_MAX
        ) as response:
            event: dict[str, str] = {}
            for line in response.iter_lines():
                if self._closed.is_set():
                    return
                if line:
                    name, _, value = line.partition(": ")
                    event[name] = value
                elif event:
                    self._take(event)
                    event = {}
                    yield

    def _take(self, event: dict[str, str]) -> None:
        kind, position = event.get("event"), event.get("id")
        if kind == "failure":
            raise NotFound(kind="view", name=self._spec.name)
        if kind == "change":
            self._put((self._decoded(event["data"]), position))
            self._told = True
        elif position is not None:
            self._put((None, position))
        self._last = position or self._last

    def _decoded(self, text: str) -> Change:
        body = orjson.loads(text)
        row = {}
        if body["row"]:
            schema = pa.schema([self._spec.schema.field(name) for name in body["row"]])
            [rows] = encodings.json.decode_lines([row_text(text)], schema, topic=self._spec.topic)
            [batch] = to_batches(rows, pa.schema([pa.field(f.name, f.type) for f in schema]), topic=self._spec.topic)
            [row] = batch.data.to_pylist(maps_as_pydicts="strict")
        return Change(op=body["op"], row=row, partition=body["partition"], offset=body["offset"])

    def _put(self, item: tuple[Change | None, str | None] | Exception) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(item, timeout=0.5)
                return
