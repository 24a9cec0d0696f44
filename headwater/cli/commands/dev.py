"""`headwater dev`: run the app of a file, and reload it whenever one of its source files is saved."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import typer

from headwater.cli import let_pandas_in
from headwater.cli.command import command
from headwater.cli.commands.run import File, Master, Only, Port, interruptible, work
from headwater.cli.commands.sources import Sources
from headwater.cli.session import Session, refuse_server
from headwater.errors import HeadwaterError, InUse

if TYPE_CHECKING:
    from headwater.apps import App
    from headwater.apps.runner import Runner

LOOK_SECONDS = 0.2


def register(app: typer.Typer) -> None:
    command(app, "dev")(dev)


def dev(session: Session, file: File = None, master: Master = None, only: Only = None, port: Port = 0) -> None:
    """Run the app of a file, and reload it whenever the file is saved.

    Modules that the app imports from its folder and `headwater.toml` are watched, too. Spark and the address of the
    console stay the same. If a file cannot be loaded, the app runs on unchanged.
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
            except HeadwaterError as error:  # a mistake in the file: the next save may fix it
                session.warn(str(error))
                saves.join()
        spark, app = runner.spark or spark, saves.fresh
    if spark is not None:
        spark.stop()


class Saves(threading.Thread):
    """Watches the source files of an app. After a save that loads, `fresh` is the new app, and the runner is stopped."""

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
                self._session.warn(f"{error} The app runs on unchanged.")
                continue
            self._session.say(f"{saved} was saved: reloading the app.")
            self._runner.request_stop()
