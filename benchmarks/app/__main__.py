"""`python -m benchmarks.app`: an app's queries, views and sinks, ours and others' in turn."""

from __future__ import annotations

from benchmarks.app.native import native
from benchmarks.app.sinks import sink_postgres
from benchmarks.app.sql import sql
from benchmarks.app.views import apply, lookup, subscribe
from benchmarks.harness import main

PARTS = {
    "native": native,
    "view.apply": apply,
    "view.lookup": lookup,
    "view.subscribe": subscribe,
    "sql.topic": sql,
    "sink.postgres": sink_postgres,
}

if __name__ == "__main__":
    main("app", PARTS)
