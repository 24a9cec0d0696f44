"""SQL over topics and views: one SELECT of a caller, run in a bounded process beside the log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headwater.errors import ArgumentInvalid
from headwater.services.route import Service, Table, route
from headwater.services.statements import StatementRequest, run_here
from headwater.services.views import DEFAULTS, ReadOptions, Views

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.apps.runner import Runner
    from headwater.views.statement import Stoppable


class Sql(Service):
    """Statements over the topics and views of a log."""

    def query(
        self, statement: str, *, app: str | None = None, limit: int | None = None, stoppable: Stoppable | None = None
    ) -> pa.Table:
        """Run one SELECT; the caller must be allowed to read each topic and view that it names.

        `stoppable` is handed a function that ends the statement from another thread.
        """
        bounds = replace(self.host.settings.statement_bounds, rows_max=None)
        request = StatementRequest(statement=statement, limit=limit, app=app, bounds=bounds, caller=self.caller)
        if self.host.statements is not None:
            return self.host.statements.query(request, stoppable=stoppable)
        return run_here(self.host.log, request, stoppable=stoppable, kept=Views(self.host).kept)

    # Any: parameters as they come in a request.
    @route("POST", "/sql", scope="read:*", audited=False)
    def run(
        self, sql: str, parameters: Any = None, *, view: str | None = None, options: ReadOptions = DEFAULTS
    ) -> Table:
        """Run one SELECT over topics and views. One that takes or gives too much is an error (422).

        `view` is the view that `at_least` is about.
        """
        views = Views(self.host, self.caller, address=self.address)
        return views.bounded(self._run(views, sql, parameters, view, options), sql, options)

    def _run(self, views: Views, sql: str, parameters: Any, view: str | None, options: ReadOptions) -> pa.Table:
        from headwater.views.wire import unpacked

        given, bounds, runner = unpacked(parameters), views.bounds(options), views.runner(options.app)
        if options.at_least:
            if view is None:
                raise ArgumentInvalid(name="view", value=None, expected="the view that `at_least` is about")
            with views.waited(view, options) as elsewhere:
                if elsewhere is not None:
                    return elsewhere.sql(sql, given, at_least=options.at_least, timeout=options.timeout)
        if runner is not None and _runs_in_store(runner, sql):
            return runner.keeper.store.query(sql, given, bounds=bounds)
        app = options.app if runner is None else runner.app.name
        return views.run(StatementRequest(statement=sql, parameters=parameters, app=app, bounds=bounds))


def _runs_in_store(runner: Runner, statement: str) -> bool:
    """Whether the store of the views runs a statement: one that takes at most one pass over the rows of a view.

    Another store than DuckDB runs all of them, in a server of its own and in its own language.
    """
    from headwater.views.conditions import parser
    from headwater.views.duckdb_store import DuckStore
    from headwater.views.sql_parser import is_plain, parse

    if not isinstance(runner.keeper.store, DuckStore):
        return True
    if not is_plain(parser(), statement):
        return False
    return all(table.name in runner.keeper.names() for table in parse(parser(), statement).tables)


# Any: the remote form of `Sql`. The server bounds how long a statement may take, so nothing stops it from here.
def _remote_query(
    self: Any,
    statement: str,
    *,
    app: str | None = None,
    limit: int | None = None,
    stoppable: Stoppable | None = None,  # noqa: ARG001
) -> pa.Table:
    return self.run(statement, options=ReadOptions(app=app)).table.slice(0, limit)


Sql.remote_methods = {"query": _remote_query}
