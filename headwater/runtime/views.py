"""The views of an app by name, wherever it runs: in this process, in another, or nowhere at the moment."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headwater.errors import QueryNotFound, RunnerNotFound
from headwater.log import open as open_log
from headwater.runtime.client import find_runner

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.runtime.app import App
    from headwater.views import RemoteView, Subscription, View, ViewKeeper

#: The keeper of each app that runs in this process, by the app's home.
LOCAL: dict[str, ViewKeeper] = {}


class AppViews(Mapping[str, "View | RemoteView | RestingView"]):
    """`app.views["spend"]`: look-ups, SQL and subscriptions. Where nobody runs the app, the last state is read."""

    def __init__(self, app: App) -> None:
        self._app = app

    def __getitem__(self, name: str) -> View | RemoteView | RestingView:
        if name not in list(self):
            near = difflib.get_close_matches(name, list(self), n=1)
            raise QueryNotFound(query=name, near=f" Did you mean {near[0]!r}?" if near else "")
        here = LOCAL.get(str(self._app.home))
        if here is not None:
            return here.view(name)
        runner = find_runner(self._app.home)
        if runner is not None:
            from headwater.views import RemoteView

            return RemoteView(name, address=runner.address, token=runner.token)
        return RestingView(self._app, name)

    def __iter__(self) -> Iterator[str]:
        return iter([query.name for query in self._app.queries if query.kind == "view"])

    def __len__(self) -> int:
        return sum(query.kind == "view" for query in self._app.queries)


class RestingView:
    """A view of an app that nobody runs: as it was left. The store is open only while it is read."""

    def __init__(self, app: App, name: str) -> None:
        self._app = app
        self.name = name

    def __repr__(self) -> str:
        return f"RestingView({self.name!r})"

    # Any, here and below: whatever the methods of `View` take.
    def get(self, *arguments: Any, **key: Any) -> dict[str, Any] | None:
        """The row of a key, None where there is none."""
        with self._opened() as view:
            return view.get(*arguments, **key)

    def rows(self, *arguments: Any, **options: Any) -> list[dict[str, Any]]:
        with self._opened() as view:
            return view.rows(*arguments, **options)

    def table(self, *arguments: Any, **options: Any) -> pa.Table:
        with self._opened() as view:
            return view.table(*arguments, **options)

    def sql(self, *arguments: Any, **options: Any) -> pa.Table:
        with self._opened() as view:
            return view.sql(*arguments, **options)

    def describe(self) -> dict[str, Any]:
        with self._opened() as view:
            return view.describe()

    def subscribe(self, *_: Any, **__: Any) -> Subscription:
        """Nobody brings changes while nobody runs the app."""
        raise RunnerNotFound(app=self._app.name)

    def live(self, **_: Any) -> None:
        """Nothing changes while nobody runs the app."""
        raise RunnerNotFound(app=self._app.name)

    def _repr_html_(self) -> str:
        from headwater.views.showing import view_html

        return view_html(self)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[View]:
        from headwater.views import PostgresStore, ViewKeeper, stored_view

        with contextlib.ExitStack() as stack:
            log = stack.enter_context(open_log(self._app.log))
            if self._app.view_store is not None:
                store = PostgresStore(self._app.view_store, app=self._app.name)
                view = ViewKeeper(log, store, read_only=True).view(self.name)
            else:
                view = stored_view(self.name, log=log, path=self._app.home / "views.duckdb")
            stack.callback(view.keeper.store.close)
            yield view
