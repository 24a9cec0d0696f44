"""SQL over topics and views: one SELECT of a caller, run in a bounded process beside the log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headwater.errors import ArgumentInvalid
from headwater.services.route import Service
from headwater.services.statements import Asked, answered
from headwater.services.views import ReadOptions, Views

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
        asked = Asked(statement=statement, limit=limit, app=app, bounds=bounds, caller=self.caller)
        if self.host.statements is not None:
            return self.host.statements.query(asked, stoppable=stoppable)
        runner = self.host.runner
        kept = {} if runner is None else {runner.app.name: runner.keeper}
        return answered(self.host.log, asked, stoppable=stoppable, kept=kept)

    # Any: parameters as they come in a request.
    def run(self, statement: str, parameters: Any, options: ReadOptions, *, view: str | None = None) -> pa.Table:
        """Run one SELECT that a program sends; `view` is the view that `at_least` is about. It needs `read` on everything."""
        from headwater.views.wire import unpacked

        self.caller.require("read", "*")
        views = Views(self.host, self.caller, address=self.address)
        given, bounds, runner = unpacked(parameters), views.bounds(options), views.runner(options.app)
        if options.at_least:
            if view is None:
                raise ArgumentInvalid(name="view", value=None, expected="the view that `at_least` is about")
            with views.waited(view, options) as elsewhere:
                if elsewhere is not None:
                    return elsewhere.sql(statement, given, at_least=options.at_least, timeout=options.timeout)
        if runner is not None and _runs_in_store(runner, statement):
            return runner.keeper.store.query(statement, given, bounds=bounds)
        app = options.app if runner is None else runner.app.name
        return views.run(Asked(statement=statement, parameters=parameters, app=app, bounds=bounds))


def _runs_in_store(runner: Runner, statement: str) -> bool:
    """Whether the store of the views runs a statement: one that takes no more than a look at all rows of a view.

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


# Any: the remote form of `Sql`, which has a connection.
def _remote_query(
    self: Any, statement: str, *, app: str | None = None, limit: int | None = None, stoppable: Stoppable | None = None
) -> pa.Table:
    from headwater.log.remote.wire import ARROW
    from headwater.views.wire import arrow_table

    del stoppable  # the server bounds how long a statement may take
    response = self.connection.ask(
        "POST", "/sql", parameters={"app": app}, json={"sql": statement}, headers={"Accept": ARROW}
    )
    return arrow_table(response.content).slice(0, limit)


Sql.remote_methods = {"query": _remote_query}
