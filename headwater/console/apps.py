"""The apps of a log, wherever they run: in this process, or in others that are asked over their local API."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.errors import HeadwaterError, QueryNotFound
from headwater.runtime.client import Client, find_runner
from headwater.runtime.graph import picture_from
from headwater.runtime.status import Graph, QueryStatus, status_of
from headwater.runtime.trouble import Trouble
from headwater.runtime.viewing import StoredViews, Views, views_of
from headwater.server.statements import Asked
from headwater.server.tokens import LOCAL, Caller

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.log import EmbeddedLog
    from headwater.runtime.runner import Runner
    from headwater.server.service import Service
    from headwater.views import RemoteView, View

T = TypeVar("T")
#: How long an app that another process runs may take to say how it does. One that hangs must not hold up the pages.
ASK_SECONDS_MAX = 5.0
#: A plan or a comparison is made when somebody asks for it.
WORK_SECONDS_MAX = 60.0
#: A query that is told to stop ends its batch first.
TELL_SECONDS_MAX = 900.0

logger = logging.getLogger("headwater.console")


class Apps:
    """What is known of the queries and views of a log, and what they may be told.

    Two apps may have a query of the same name; without `app` the first that has one is meant.
    """

    def __init__(self, log: EmbeddedLog, runner: Runner | None = None, *, service: Service | None = None) -> None:
        """SQL runs where the `service` runs it; without one in this process."""
        self._log = log
        self._service = service
        self._runner = runner
        self.silent: tuple[str, ...] = ()
        """The apps that run elsewhere, but did not say how they do when they were last asked."""

    def running(self) -> list[str]:
        """The apps that run now, here or elsewhere."""
        names = [] if self._runner is None else [self._runner.app.name]
        return names + [name for name in self._elsewhere() if name not in names]

    def is_starting(self) -> bool:
        """Whether this process runs an app whose Spark is not up yet."""
        return self._runner is not None and self._runner.spark is None

    def statuses(self) -> list[QueryStatus]:
        """How every query does. Apps that have just ended are left out, and so are those that are silent."""
        found = [] if self._runner is None else list(self._runner.statuses())
        answers = self._answers(lambda client: [status_of(one) for one in client.get("/queries")])
        self.silent = tuple(name for name, answer in answers.items() if answer is None)
        return found + [one for answer in answers.values() for one in answer or ()]

    def graphs(self) -> list[Graph]:
        """What reads from what, one picture for each app."""
        found = [] if self._runner is None else [self._runner.graph()]
        answers = self._answers(lambda client: picture_from(client.get("/graph", format="json")))
        return found + [answer for answer in answers.values() if answer is not None]

    def explain(self, query: str, *, app: str = "") -> str:
        """Spark's plan of a query."""
        if (runner := self._here(query, app)) is not None:
            return runner.explain(query)
        client = self._owner(query, app, seconds_max=WORK_SECONDS_MAX)
        return str(client.get(f"/queries/{query}/explain")["plan"])

    def trouble(self, query: str, *, app: str = "") -> Trouble | None:
        """What has last gone wrong in a query, in full: the user's own line first."""
        if (runner := self._here(query, app)) is not None:
            return runner.trouble(query)
        told = self._owner(query, app, seconds_max=ASK_SECONDS_MAX).get(f"/queries/{query}/trouble")
        return Trouble(**{**told, "details": tuple(told["details"])}) if told else None

    # Any: how two versions of a query compare, as JSON.
    def trial(self, query: str, *, app: str = "") -> dict[str, Any]:
        """How the version on trial compares with the one in use."""
        if (runner := self._here(query, app)) is not None:
            return runner.replays.report(query).as_dict()
        client = self._owner(query, app, seconds_max=WORK_SECONDS_MAX)
        found: dict[str, Any] = client.get(f"/queries/{query}/replay")
        return found

    def stop(self, query: str, *, app: str = "") -> None:
        if (runner := self._here(query, app)) is not None:
            runner.stop_query(query)
        else:
            self._owner(query, app, seconds_max=TELL_SECONDS_MAX).post(f"/queries/{query}/stop")

    def restart(self, query: str, *, app: str = "") -> None:
        if (runner := self._here(query, app)) is not None:
            runner.restart_query(query)
        else:
            self._owner(query, app, seconds_max=TELL_SECONDS_MAX).post(f"/queries/{query}/restart")

    # -- views --------------------------------------------------------------------------------------------------------

    # Any: what there is to know of a view, as JSON.
    def views(self) -> list[dict[str, Any]]:
        """Every view with how fresh it is; those of apps that do not run as they were left."""
        with self._views() as views:
            return views.described()

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
        caller: Caller = LOCAL,
    ) -> pa.Table:
        """One SELECT over topics and views, all of which the caller must be allowed to read."""
        if self._service is not None and self._service.statements is not None:
            bounds = replace(self._service.settings.statement_bounds, rows_max=None)
            asked = Asked(statement=statement, limit=limit, bounds=bounds, caller=caller)
            return self._service.statements.query(asked, stoppable=stoppable)
        from headwater.views.sql import Sql

        with self._views() as views:
            sql = Sql(self._log, views, files=False, check=lambda name: caller.require("read", name))
            return sql.query(statement, limit=limit, stoppable=stoppable)

    @contextmanager
    def _views(self) -> Iterator[Views]:
        if self._runner is None:
            with views_of(self._log) as views:
                yield views
        else:
            yield Views({self._runner.app.name: StoredViews(self._runner.keeper, running=True)})

    # -- who runs what ------------------------------------------------------------------------------------------------

    def _here(self, query: str, app: str) -> Runner | None:
        """The runner of this process, where the query is one of its own."""
        runner = self._runner
        if runner is None or app not in ("", runner.app.name):
            return None
        return runner if any(one.name == query for one in runner.queries) else None

    def _owner(self, query: str, app: str, *, seconds_max: float) -> Client:
        """Who is to be asked about a query of another process."""
        folder = self._log.path / "apps"
        for name, client in self._elsewhere().items():
            if app not in ("", name):
                continue
            with _gone_is_nothing():
                if any(one["name"] == query for one in client.get("/queries")):
                    return Client(name, folder / name, seconds_max=seconds_max)
        raise QueryNotFound(query=query, near="")

    def _answers(self, question: Callable[[Client], T]) -> dict[str, T | None]:
        """What the apps of other processes answer, all asked at once; None of one that runs, but gives no answer."""
        clients = self._elsewhere()
        if not clients:
            return {}

        def ask(name: str) -> T | None:
            try:
                return question(clients[name])
            except HeadwaterError:
                return None
            # An app of another version may answer in a way that we do not know; the others are shown all the same.
            except Exception:
                logger.exception("the answer of app %r makes no sense here", name)
                return None

        with ThreadPoolExecutor(len(clients), thread_name_prefix="headwater-apps") as pool:
            answers = dict(zip(clients, pool.map(ask, clients), strict=True))
        ended = [name for name, answer in answers.items() if answer is None and not self._runs(name)]
        return {name: answer for name, answer in answers.items() if name not in ended}

    def _runs(self, name: str) -> bool:
        return find_runner(self._log.path / "apps" / name) is not None

    def _elsewhere(self) -> dict[str, Client]:
        folder = self._log.path / "apps"
        if not folder.is_dir():
            return {}
        own = None if self._runner is None else self._runner.app.name
        found = {}
        for home in sorted(folder.iterdir()):
            if home.name != own and home.is_dir() and find_runner(home) is not None:
                with _gone_is_nothing():
                    found[home.name] = Client(home.name, home, seconds_max=ASK_SECONDS_MAX)
        return found


@contextmanager
def _gone_is_nothing() -> Iterator[None]:
    """An app may end between two questions; then there is nothing to tell of it."""
    try:
        yield
    except HeadwaterError:
        return
