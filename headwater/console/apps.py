"""The apps of a log, wherever they run: in this process, or in others that are asked over their local API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError, QueryNotFound
from headwater.runtime.client import Client, find_runner
from headwater.runtime.graph import picture_from
from headwater.runtime.status import Graph, QueryStatus
from headwater.runtime.trouble import Trouble
from headwater.runtime.viewing import StoredViews, Views, views_of

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.log import EmbeddedLog
    from headwater.runtime.runner import Runner
    from headwater.views import RemoteView, View


class Apps:
    """What is known of the queries and views of a log, and what they may be told."""

    def __init__(self, log: EmbeddedLog, runner: Runner | None = None) -> None:
        self._log = log
        self._runner = runner

    def running(self) -> list[str]:
        """The apps that run now, here or elsewhere."""
        names = [] if self._runner is None else [self._runner.app.name]
        return names + [name for name in self._elsewhere() if name not in names]

    def is_starting(self) -> bool:
        """Whether this process runs an app whose Spark is not up yet."""
        return self._runner is not None and self._runner.spark is None

    def statuses(self) -> list[QueryStatus]:
        """How every query does. Apps that have just ended are left out."""
        found = [] if self._runner is None else list(self._runner.statuses())
        for client in self._elsewhere().values():
            with _gone_is_nothing():
                for one in client.get("/queries"):
                    found.append(
                        QueryStatus(**{**one, "inputs": tuple(one["inputs"]), "outputs": tuple(one["outputs"])})
                    )
        return found

    def status(self, query: str) -> QueryStatus:
        every = self.statuses()
        for one in every:
            if one.name == query:
                return one
        raise QueryNotFound(query=query, near="")

    def graphs(self) -> list[Graph]:
        """What reads from what, one picture for each app."""
        found = [] if self._runner is None else [self._runner.graph()]
        for client in self._elsewhere().values():
            with _gone_is_nothing():
                found.append(picture_from(client.get("/graph", format="json")))
        return found

    def explain(self, query: str) -> str:
        """Spark's plan of a query."""
        if self._has(query) and self._runner is not None:
            return self._runner.explain(query)
        return str(self._owner(query).get(f"/queries/{query}/explain")["plan"])

    def trouble(self, query: str) -> Trouble | None:
        """What has last gone wrong in a query, in full: the user's own line first."""
        if self._has(query) and self._runner is not None:
            return self._runner.trouble(query)
        told = self._owner(query).get(f"/queries/{query}/trouble")
        return Trouble(**{**told, "details": tuple(told["details"])}) if told else None

    # Any: how two versions of a query compare, as JSON.
    def trial(self, query: str) -> dict[str, Any]:
        """How the version on trial compares with the one in use."""
        if self._has(query) and self._runner is not None:
            return self._runner.replays.report(query).as_dict()
        found: dict[str, Any] = self._owner(query).get(f"/queries/{query}/replay")
        return found

    def stop(self, query: str) -> None:
        if self._has(query) and self._runner is not None:
            self._runner.stop_query(query)
        else:
            self._owner(query).post(f"/queries/{query}/stop")

    def restart(self, query: str) -> None:
        if self._has(query) and self._runner is not None:
            self._runner.restart_query(query)
        else:
            self._owner(query).post(f"/queries/{query}/restart")

    # -- views --------------------------------------------------------------------------------------------------------

    # Any: what there is to know of a view, as JSON.
    def views(self) -> list[dict[str, Any]]:
        """Every view with how fresh it is; those of apps that do not run as they were left."""
        with self._views() as views:
            return [views.describe(name) for name in views.names()]

    @contextmanager
    def view(self, name: str) -> Iterator[View | RemoteView]:
        """A view, to be asked while the block runs."""
        with self._views() as views:
            yield views.view(name)

    def sql(
        self,
        statement: str,
        *,
        limit: int | None = None,
        stoppable: Callable[[Callable[[], None]], object] | None = None,
        check: Callable[[list[str]], object] | None = None,
    ) -> pa.Table:
        """One SELECT over topics and views. `check` is told which of them it reads, and may refuse."""
        from headwater.views.sql import Sql

        with self._views() as views:
            sql = Sql(self._log, views, files=False)
            if check is not None:
                check(sql.names(statement))
            return sql.query(statement, limit=limit, stoppable=stoppable)

    @contextmanager
    def _views(self) -> Iterator[Views]:
        if self._runner is None:
            with views_of(self._log) as views:
                yield views
        else:
            yield Views({self._runner.app.name: StoredViews(self._runner.keeper, running=True)})

    # -- who runs what ------------------------------------------------------------------------------------------------

    def _has(self, query: str) -> bool:
        return self._runner is not None and any(one.name == query for one in self._runner.queries)

    def _owner(self, query: str) -> Client:
        for client in self._elsewhere().values():
            with _gone_is_nothing():
                if any(one["name"] == query for one in client.get("/queries")):
                    return client
        raise QueryNotFound(query=query, near="")

    def _elsewhere(self) -> dict[str, Client]:
        folder = self._log.path / "apps"
        if not folder.is_dir():
            return {}
        own = None if self._runner is None else self._runner.app.name
        found = {}
        for home in sorted(folder.iterdir()):
            if home.name != own and home.is_dir() and find_runner(home) is not None:
                with _gone_is_nothing():
                    found[home.name] = Client(home.name, home)
        return found


@contextmanager
def _gone_is_nothing() -> Iterator[None]:
    """An app may end between two questions; then there is nothing to tell of it."""
    try:
        yield
    except HeadwaterError:
        return
