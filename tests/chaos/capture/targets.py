"""The targets of syncs that follow the captured topic, and the process that applies it to them."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

from headwater.log import Log
from headwater.sync import SyncConfig, SyncStore
from tests.chaos.capture.databases import PASSWORD_ENV, Database
from tests.chaos.process import EXIT_SECONDS_MAX, PROGRESS_SECONDS_MAX, ROOT, Child, Stuck

POINTS = ("target.written", "target.before_commit", "target.committed")
TABLE = "items"


class SyncProcess(Child):
    """`headwater sync run` for all targets, through all its lives."""

    def __init__(self, home: Path, log: Log, source: Database, topic: str) -> None:
        home.mkdir()
        super().__init__(home, log)
        self._files = {"sqlite": home / "copy.db", "duckdb": home / "copy.duckdb"}
        self._copy = source.copy
        self._topic = topic
        self._is_made = False

    def make(self) -> None:
        """Define the syncs; their topic must be there."""
        if self._is_made:
            return
        self._is_made = True
        urls = {kind: f"{kind}:///{path}" for kind, path in self._files.items()}
        for kind, url in urls.items():
            SyncStore(self.log).create(SyncConfig(name=f"to-{kind}", url=url, topics=(self._topic,)))
        if self._copy is not None:
            secret = PASSWORD_ENV if self._copy.kind == "postgres" else None
            config = SyncConfig(
                name=f"to-{self._copy.kind}", url=self._copy.url, topics=(self._topic,), password_env=secret
            )
            SyncStore(self.log).create(config)

    def arguments(self) -> list[str]:
        return self._words("sync", "run")

    def _words(self, *words: str) -> list[str]:
        every = ["--log", self.log.address, *words]
        return ["-c", f"import sys; from headwater.cli import main; sys.argv[1:] = {every!r}; main()"]

    def progress(self) -> tuple[int, ...]:
        return ()

    def start(self) -> None:
        self.make()
        super().start()

    def catch_up(self) -> None:
        """End the process that runs, and let another one apply everything."""
        self.make()
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
            self._child.wait(EXIT_SECONDS_MAX)
        done = subprocess.run(
            [sys.executable, *self._words("sync", "run", "--until-caught-up")],
            cwd=ROOT, capture_output=True, text=True, timeout=PROGRESS_SECONDS_MAX,
        )  # fmt: skip
        if done.returncode:
            raise Stuck(f"the sync ended with code {done.returncode}: {done.stderr[-500:]}")

    # Any: values of rows.
    def tables(self) -> dict[str, Mapping[int, Mapping[str, Any]]]:
        """What each target holds."""
        with sqlite3.connect(self._files["sqlite"]) as file:
            cursor = file.execute(f"SELECT * FROM {TABLE}")
            found: dict[str, Mapping[int, Mapping[str, Any]]] = {
                "SQLite": _by_key([one[0] for one in cursor.description], cursor.fetchall())
            }
        with duckdb.connect(str(self._files["duckdb"]), read_only=True) as link:
            rows = link.execute(f"SELECT * FROM {TABLE}")
            found["DuckDB"] = _by_key([one[0] for one in rows.description], rows.fetchall())
        if self._copy is not None:
            session = self._copy.session()
            found[self._copy.kind] = _by_key(session.columns(TABLE), session.run(f"SELECT * FROM {TABLE}"))
            session.close()
        return found


# Any: values of rows.
def _by_key(names: list[str], rows: list[tuple[Any, ...]]) -> dict[int, dict[str, Any]]:
    place = names.index("id")
    return {int(row[place]): dict(zip(names, row, strict=True)) for row in rows}
