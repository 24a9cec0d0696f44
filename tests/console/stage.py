"""An app on a stage: the console of an app without Spark, whose graph and statuses a test writes as it likes.

`python -m tests.console.stage LOG` serves it as a process of its own, so that the console is what it is for everybody.
What it shows stands in `LOG/stage.json`, and is read again for every request: a test can start queries one after another.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import headwater
from headwater.apps.failure import Trouble
from headwater.apps.graph import picture_from
from headwater.apps.replay import Comparison
from headwater.apps.status import Graph, Node, QueryStatus
from headwater.console import console_for_server
from headwater.errors import NotFound
from headwater.http.server import Address, run_server
from headwater.log import Log
from headwater.services.settings import Settings
from headwater.services.tokens import Tokens

APP = "shop"
FILE = "stage.json"


class Stage:
    """What a test shows: the queries of an app with what they read and write."""

    def __init__(self, log: Log) -> None:
        self._path = log.home / FILE
        self.spark = True
        self.statuses: list[QueryStatus] = []
        self.graph = Graph(app=APP, nodes=(), edges=())
        self.trouble: Trouble | None = None
        #: What was asked of the app, in order; written by the process.
        self._asked = log.home / "asked.txt"
        self._asked.unlink(missing_ok=True)

    def show(self) -> None:
        """Let the console see it; by one rename, for it reads at any time."""
        body = {
            "spark": self.spark,
            "graph": asdict(self.graph),
            "statuses": [asdict(status) for status in self.statuses],
            "trouble": None if self.trouble is None else asdict(self.trouble),
        }
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(body))
        fresh.rename(self._path)

    def asked(self) -> list[str]:
        return self._asked.read_text().splitlines() if self._asked.exists() else []


def graph_of(queries: Mapping[str, tuple[Sequence[str], Sequence[str]]], *, app: str = APP) -> Graph:
    """A graph from queries with what they read and write; `sink:` marks a sink, and a query's own name its view."""
    nodes: dict[str, Node] = {}
    edges = []
    for name, (reads, writes) in queries.items():
        nodes[f"{name}()"] = Node(name=f"{name}()", kind="query", label="pipeline.py:1")
        for topic in (*reads, *writes):
            sink = topic.removeprefix("sink:") if topic.startswith("sink:") else None
            known = f"{name} → {sink}" if sink else topic
            kind: Any = "sink" if sink else "view" if topic in queries else "topic"
            nodes.setdefault(known, Node(name=known, kind=kind, label="exactly once" if sink else "id, amount, at"))
            edges.append((known, f"{name}()") if topic in reads else (f"{name}()", known))
    return Graph(app=app, nodes=tuple(nodes.values()), edges=tuple(edges))


# Any: stands in for a runner, as far as the services ask one.
def runner_of(log: Log) -> Any:
    path, asked = log.home / FILE, log.home / "asked.txt"

    def stage() -> dict[str, Any]:
        body: dict[str, Any] = json.loads(path.read_text())
        return body

    def statuses() -> list[QueryStatus]:
        return [
            QueryStatus(**{**status, "inputs": tuple(status["inputs"]), "outputs": tuple(status["outputs"])})
            for status in stage()["statuses"]
        ]

    def note(text: str) -> None:
        with asked.open("a") as file:
            file.write(f"{text}\n")

    def trouble(name: str) -> Trouble | None:
        if name not in [status.name for status in statuses()]:
            raise NotFound(kind="query", name=name, near="")
        told = stage()["trouble"]
        return None if told is None else Trouble(**{**told, "details": tuple(told["details"])})

    class Runner(SimpleNamespace):
        @property
        def spark(self) -> object | None:
            return object() if stage()["spark"] else None

        @property
        def queries(self) -> list[QueryStatus]:
            return statuses()

    compared = Comparison(query="", active=1, trial=2, state="running", same=40, changed=2, only_active=1)
    return Runner(
        app=SimpleNamespace(name=APP, queries=[]),
        log=log,
        statuses=statuses,
        graph=lambda: picture_from(stage()["graph"]),
        trouble=trouble,
        explain=lambda name: f"== Physical Plan ==\n*(1) Project of {name} <b>\n",
        stop_query=lambda name: note(f"stop {name}"),
        restart_query=lambda name: note(f"restart {name}"),
        rescale_query=lambda name, partitions: note(f"rescale {name} {partitions}"),
        replays=SimpleNamespace(report=lambda name: replace(compared, query=name)),
    )


@contextmanager
def staging(log: Log) -> Iterator[str]:
    """Such a process on a free port while the block runs; gives its address."""
    words = [sys.executable, "-m", "tests.console.stage", log.address]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["address"]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


@dataclass(frozen=True, kw_only=True)
class Theatre:
    """A log with such a process on it; tests share it, and each has a stage of its own."""

    log: Log
    address: str


@contextmanager
def opened_theatre(path: Path) -> Iterator[Theatre]:
    with headwater.open(path) as log:
        assert isinstance(log, Log)
        Stage(log).show()
        with staging(log) as address:
            yield Theatre(log=log, address=address)


def main(path: str) -> None:
    with headwater.open(path) as log:
        assert isinstance(log, Log)
        run_server(
            log,
            Address(port=0),
            settings=Settings(),
            tokens=Tokens(log.home),
            tell=lambda url: print(json.dumps({"address": url}), flush=True),
            confined=False,  # its views are kept by this process, which no other can ask
            runner=runner_of(log),
            **console_for_server(),
        )


if __name__ == "__main__":
    main(sys.argv[1])
