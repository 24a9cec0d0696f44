"""`headwater dev`: run the app of a file, and take it in again whenever the file is saved."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from headwater.cli import let_pandas_in
from headwater.cli.commands import command
from headwater.cli.run import File, Master, Only, Port, chosen_file, interruptible, work
from headwater.cli.session import Session, refuse_server
from headwater.errors import HeadwaterError, RunnerActive

if TYPE_CHECKING:
    from headwater.runtime import App
    from headwater.runtime.runner import Runner

LOOK_SECONDS = 0.2


def register(app: typer.Typer) -> None:
    command(app, "dev")(dev)


def dev(session: Session, file: File = None, master: Master = None, only: Only = None, port: Port = 0) -> None:
    """Run the app of a file, and take it in again whenever the file is saved.

    Spark stays up, so a change is at work within a second or two. A file that does not load leaves the app as it was.
    """
    from headwater.runtime.loading import load_app
    from headwater.runtime.runner import Runner
    from headwater.server.running import served_app

    let_pandas_in()
    chosen = chosen_file(session, file)
    app: App | None = load_app(chosen)
    spark = None
    while app is not None:
        refuse_server(session.flags.log or app.log)
        runner = Runner(
            app, log=session.flags.log, master=master, only=only or (), port=port, served=served_app, spark=spark
        )
        saves = Saves(session, chosen, runner)
        with interruptible(session, runner):
            saves.start()
            try:
                with runner.ready():
                    work(session, runner, until_caught_up=False)
            except RunnerActive:
                raise
            except HeadwaterError as error:  # a mistake in the file: the next save may mend it
                session.warn(str(error))
                saves.join()
        spark, app = runner.spark or spark, saves.fresh
    if spark is not None:
        spark.stop()


class Saves(threading.Thread):
    """Watches a file. When it was saved and loads, `fresh` is the new app, and the runner is asked to stop."""

    def __init__(self, session: Session, file: str, runner: Runner) -> None:
        super().__init__(name="headwater-dev", daemon=True)
        self._session = session
        self._file = file
        self._path = Path(file.partition(":")[0])
        self._runner = runner
        self._saved = self._when()
        self.fresh: App | None = None

    def run(self) -> None:
        from headwater.runtime.loading import load_app

        while not self._runner.wait_for_stop(LOOK_SECONDS):
            saved = self._when()
            if saved in (self._saved, None):
                continue
            self._saved = saved
            try:
                self.fresh = load_app(self._file)
            except HeadwaterError as error:
                self._session.warn(f"{error} The app goes on as it was.")
                continue
            self._session.say(f"{self._path} was saved: taking it in.")
            self._runner.request_stop()

    def _when(self) -> int | None:
        with contextlib.suppress(FileNotFoundError):  # editors replace a file in two steps
            return self._path.stat().st_mtime_ns
        return None
