"""The views of an app by name, wherever it runs: in this process, in another, or nowhere at the moment."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from headwater.errors import QueryNotFound
from headwater.log import open as open_log
from headwater.runtime.client import find_runner

if TYPE_CHECKING:
    from headwater.runtime.app import App
    from headwater.views import RemoteView, View, ViewKeeper

#: The keeper of each app that runs in this process, by the app's home.
LOCAL: dict[str, ViewKeeper] = {}


class AppViews(Mapping[str, "View | RemoteView"]):
    """`app.views["spend"]`: look-ups, SQL and subscriptions. Where nobody runs the app, the last state is read."""

    def __init__(self, app: App) -> None:
        self._app = app

    def __getitem__(self, name: str) -> View | RemoteView:
        if name not in list(self):
            near = difflib.get_close_matches(name, list(self), n=1)
            raise QueryNotFound(query=name, near=f" Did you mean {near[0]!r}?" if near else "")
        from headwater.views import RemoteView, stored_view

        here = LOCAL.get(str(self._app.home))
        if here is not None:
            return here.view(name)
        runner = find_runner(self._app.home)
        if runner is not None:
            return RemoteView(name, address=runner.address, token=runner.token)
        return stored_view(name, log=open_log(self._app.log), path=self._app.home / "views.duckdb")

    def __iter__(self) -> Iterator[str]:
        return iter([query.name for query in self._app.queries if query.kind == "view"])

    def __len__(self) -> int:
        return sum(query.kind == "view" for query in self._app.queries)
