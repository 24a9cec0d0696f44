"""The queries of an app that no process runs."""

from __future__ import annotations

from headwater.apps.home import DeclaredQuery, Home
from headwater.apps.query_progress import measured
from headwater.apps.status import QueryStatus
from headwater.log import Log


def stopped_queries(home: Home, log: Log) -> list[QueryStatus]:
    """Return the status of each query of an app that no process runs. All of them are stopped; their lag is that of now."""
    return [stopped_query(query, home, log) for query in home.queries()]


def stopped_query(query: DeclaredQuery, home: Home, log: Log) -> QueryStatus:
    """Return the status of a query that does not run."""
    version = home.versions(query.name, topic=query.output).active
    status = QueryStatus(
        name=query.name,
        kind=query.kind,
        app=home.path.name,
        state="stopped",
        version=version.number,
        inputs=query.inputs,
        outputs=(*([version.topic] if version.topic is not None else []), *query.sinks),
        side_outputs=query.side_outputs,
    )
    return measured(status, home, log, start=version.start)
