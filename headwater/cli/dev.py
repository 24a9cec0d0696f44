"""`headwater dev`: run the app of a file, and take it in again whenever something that it is made of is saved."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import typer

from headwater.cli import let_pandas_in
from headwater.cli.commands import command
from headwater.cli.run import File, Master, Only, Port, interruptible, work
from headwater.cli.session import Session, refuse_server
from headwater.cli.sources import Sources
from headwater.errors import HeadwaterError, InUse

if TYPE_CHECKING:
    from headwater.apps import App
    from headwater.apps.runner import Runner

LOOK_SECONDS = 0.2


def register(app: typer.Typer) -> None:
    command(app, "dev")(dev)


def dev(session: Session, file: File = None, master: Master = None, only: Only = None, port: Port = 0) -> None:
    """Run the app of a file, and take it in again whenever it is saved.

    The same holds for the modules that it has loaded from its folder, and for `headwater.toml`. Spark stays up, and so does
    the address of the console. What does not load leaves the app as it was.
    """
    from headwater.apps.runner import Runner
    from headwater.console import served_with_console

    let_pandas_in()
    sources = Sources(session, file)
    app: App | None = sources.load()
    spark = None
    while app is not None:
        refuse_server(session.flags.log or app.log)
        served = served_with_console
        runner = Runner(
            app, log=session.flags.log, master=master, only=only or (), port=port, served=served, spark=spark
        )
        saves = Saves(session, sources, runner)
        with interruptible(session, runner):
            saves.start()
            try:
                with runner.ready():
                    port = urlsplit(runner.announced.address).port or port  # pages that are open find it again
                    work(session, runner, until_caught_up=False)
            except InUse:
                raise
            except HeadwaterError as error:  # a mistake in the file: the next save may mend it
                session.warn(str(error))
                saves.join()
        spark, app = runner.spark or spark, saves.fresh
    if spark is not None:
        spark.stop()


class Saves(threading.Thread):
    """Watches what an app is made of. When it was saved and loads, `fresh` is the new app, and the runner is asked to stop."""

    def __init__(self, session: Session, sources: Sources, runner: Runner) -> None:
        super().__init__(name="headwater-dev", daemon=True)
        self._session = session
        self._sources = sources
        self._runner = runner
        self.fresh: App | None = None

    def run(self) -> None:
        while not self._runner.wait_for_stop(LOOK_SECONDS):
            saved = self._sources.saved()
            if saved is None:
                continue
            try:
                self.fresh = self._sources.load()
            except (HeadwaterError, typer.BadParameter) as error:
                self._session.warn(f"{error} The app goes on as it was.")
                continue
            self._session.say(f"{saved} was saved: taking it in.")
            self._runner.request_stop()
