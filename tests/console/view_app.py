"""An app without Spark, for pages that show views: it keeps every compacted topic of a log as a view, and serves the console.

`python -m tests.console.view_app LOG`: a process of its own, so that the console is what it is for everybody.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import headwater
from headwater.apps.status import Graph, Node, QueryStatus
from headwater.console import console_for_server
from headwater.http.server import Address, run_server
from headwater.log import Log
from headwater.services.settings import Settings
from headwater.services.tokens import Tokens
from headwater.views import DuckStore, ViewKeeper, ViewSpec

APP = "shop"


def kept(log: Log, path: Path) -> ViewKeeper:
    """A keeper of a view for each compacted topic with a key."""
    keeper = ViewKeeper(log, DuckStore(path))
    for name in log.topics():
        topic = log.topic(name)
        if topic.compact and topic.key:
            keeper.add(ViewSpec(name=name, topic=name, key=topic.key, schema=topic.schema))
    return keeper


# Any: stands in for a runner, as far as the services ask one.
def runner_of(log: Log, keeper: ViewKeeper) -> Any:
    names = keeper.names()
    statuses = [
        QueryStatus(name=name, kind="view", app=APP, state="running", inputs=("payments",), outputs=(name,), lag_rows=0)
        for name in names
    ]
    nodes = [Node(name="payments", kind="topic"), *(Node(name=f"{name}()", kind="query") for name in names)]
    edges = [edge for name in names for edge in (("payments", f"{name}()"), (f"{name}()", name))]
    graph = Graph(app=APP, nodes=tuple(nodes), edges=tuple(edges))
    return SimpleNamespace(
        app=SimpleNamespace(name=APP, queries=[]),
        keeper=keeper,
        log=log,
        spark=object(),
        queries=[],
        statuses=lambda: statuses,
        graph=lambda: graph,
    )


@contextmanager
def keeping(path: Path) -> Iterator[str]:
    """Such a process on a free port while the block runs; gives its address."""
    words = [sys.executable, "-m", "tests.console.view_app", str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["address"]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


def main(path: str) -> None:
    with headwater.open(path) as log:
        assert isinstance(log, Log)
        home = Path(path) / "apps" / APP
        home.mkdir(parents=True, exist_ok=True)
        keeper = kept(log, home / "views.duckdb")
        keeper.start()
        run_server(
            log,
            Address(port=0),
            settings=Settings(),
            tokens=Tokens(log.home),
            tell=lambda address: print(json.dumps({"address": address}), flush=True),
            confined=False,  # its views are kept by this process, which no other can ask
            runner=runner_of(log, keeper),
            **console_for_server(),
        )
        keeper.stop()


if __name__ == "__main__":
    main(sys.argv[1])
