"""How the company does, asked from outside of its process: the runner's API, its checkpoints, and the log."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.demo.topics import APP
from headwater.errors import HeadwaterError
from headwater.runtime.client import Client
from headwater.runtime.home import Home
from headwater.runtime.status import QueryStatus

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.log import EmbeddedLog


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What a look has shown: whether the server answers, whether Spark is up, and how each query does."""

    address: str | None = None
    spark: bool = False
    statuses: tuple[QueryStatus, ...] = ()

    @property
    def at_work(self) -> int:
        """How many queries have done a batch."""
        return sum(one.batch is not None for one in self.statuses)


class Follower:
    """Looks at the company of a log."""

    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log
        self._home = Home(Path(log.path) / "apps" / APP)
        self._with_spark: set[int] = set()

    def look(self) -> Progress:
        """How it does now; a process that is gone, or not there yet, has no address."""
        with contextlib.suppress(HeadwaterError):
            client = Client(APP, self._home.path)
            told = [
                QueryStatus(**{**one, "inputs": tuple(one["inputs"]), "outputs": tuple(one["outputs"])})
                for one in client.get("/queries")
            ]
            if client.runner.pid not in self._with_spark and client.get("/app")["spark"]:
                self._with_spark.add(client.runner.pid)
            spark = client.runner.pid in self._with_spark
            return Progress(address=client.runner.address, spark=spark, statuses=tuple(told))
        return Progress()

    def has_caught_up(self, queries: Sequence[str]) -> bool:
        """Whether these queries have committed all that their topics hold. Each must stand after those that it reads."""
        for name in queries:
            read = self._committed(name)
            if not read or any(self._log.end_offsets(topic) != ends for topic, ends in read.items()):
                return False
        return True

    def batches(self, query: str) -> int:
        """How many batches a query has committed. Its checkpoint knows at once; Spark's reports come later."""
        return _count(self._home.checkpoint(query, 1) / "commits")

    def in_a_batch(self, queries: Sequence[str]) -> list[str]:
        """Which of these queries have begun a batch, and not committed it."""
        return [one for one in queries if _count(self._home.checkpoint(one, 1) / "offsets") > self.batches(one)]

    def _committed(self, query: str) -> dict[str, dict[int, int]]:
        """How far a query has come in each of its topics, by the last batch that it has committed."""
        count = self.batches(query)
        if count == 0:
            return {}
        offsets = self._home.checkpoint(query, 1) / "offsets" / str(count - 1)
        found: dict[str, dict[int, int]] = {}
        for line in offsets.read_text().splitlines()[2:]:
            topics = json.loads(line).get("topics", {}) if line.startswith("{") else {}
            found |= {topic: {int(number): end for number, end in ends.items()} for topic, ends in topics.items()}
        return found

    def views_are_fresh(self, views: Sequence[str]) -> bool:
        """Whether the stores of these views have all that their topics hold."""
        client = Client(APP, self._home.path)
        return all(float(client.get(f"/views/{name}")["freshness"]) == 0 for name in views)

    def rows(self, topic: str) -> pa.Table:
        """All rows of a topic, with their places."""
        return self._log.read(topic).table()

    def output(self, name: str, kind: str) -> pa.Table:
        """What has become of a query, or of the rows of a topic that nobody could use."""
        if kind == "view":
            return self._view(name)
        return self.rows(name if kind == "topic" else f"{name}.dlq")

    def _view(self, name: str) -> pa.Table:
        """All rows of a view, as it is served."""
        from headwater.views import RemoteView

        runner = Client(APP, self._home.path).runner
        view = RemoteView(name, address=runner.address, token=runner.token)
        try:
            return view.table()
        finally:
            view.close()


def _count(folder: Path) -> int:
    """How many batches have left a file in a folder of a checkpoint; the oldest are tidied away."""
    return max((int(path.name) + 1 for path in folder.glob("*") if path.name.isdecimal()), default=0)
