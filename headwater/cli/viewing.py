"""Where the views of a log can be read now, for a command."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from headwater.errors import PackageMissing, RunnerNotFound, ServerUnreachable

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.cli.session import Session
    from headwater.log import EmbeddedLog
    from headwater.runtime.viewing import Views
    from headwater.views import RemoteView
    from headwater.views.bounds import Stoppable

SECONDS_MAX = 60.0
# Any: what there is to know of a view, as JSON.
Record = dict[str, Any]


def views_of(session: Session, log: EmbeddedLog, app: str | None) -> AbstractContextManager[Views]:
    """The views of the log's apps, or of one of them, while the block runs."""
    if session.is_remote:
        return _served_views(session, app)
    from headwater.runtime.viewing import views_of

    return views_of(log, app)


class ServedViews:
    """The views of one app, over the server of its log."""

    def __init__(self, session: Session, app: str, described: list[Record]) -> None:
        from headwater.views import RemoteView

        address, token = session.config.log, session.config.token or ""
        self._described = {one["name"]: one for one in described}
        self._views = {name: RemoteView(name, address=address, token=token, app=app) for name in self._described}

    def names(self) -> list[str]:
        return list(self._described)

    def view(self, name: str) -> RemoteView:
        return self._views[name]

    def describe(self, name: str) -> Record:
        return {"running": True, **self._described[name]}

    # Any: parameters of a statement.
    def query(self, statement: str, parameters: Any, *, stoppable: Stoppable | None = None) -> pa.Table:  # noqa: ARG002
        return next(iter(self._views.values())).sql(statement, parameters)

    def close(self) -> None:
        for view in self._views.values():
            view.close()


@contextlib.contextmanager
def _served_views(session: Session, app: str | None) -> Iterator[Views]:
    from headwater.runtime.viewing import Views

    by_app: dict[str, list[Record]] = {}
    for one in _listed(session):
        by_app.setdefault(str(one.get("app", "app")), []).append(one)
    if app is not None:
        if app not in by_app:
            raise RunnerNotFound(app=app)
        by_app = {app: by_app[app]}
    with contextlib.ExitStack() as stack:
        places = {name: ServedViews(session, name, described) for name, described in by_app.items()}
        for place in places.values():
            stack.callback(place.close)
        yield Views(places)


def _listed(session: Session) -> list[Record]:
    """What the server says of its views; none where it serves none."""
    try:
        import httpx
    except ImportError:
        raise PackageMissing(package="httpx", extra="server") from None
    from headwater.log.remote.wire import error_from_json

    address, token = session.config.log.rstrip("/"), session.config.token
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        secure = not address.lower().startswith("http:")
        answer = httpx.get(f"{address}/v1/views", headers=headers, timeout=SECONDS_MAX, verify=secure)
    except httpx.TransportError as error:
        raise ServerUnreachable(address=address, why=str(error) or type(error).__name__) from error
    if answer.status_code == 404:
        return []
    try:
        body = answer.json()
    except ValueError:
        body = {}
    if answer.is_error:
        raise error_from_json(answer.status_code, body, address=address)
    found: list[Record] = body
    return found
