"""`headwater check`: find the mistakes of an app's file without running the app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli import let_pandas_in
from headwater.cli.commands.run import File, chosen_file
from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.cli.terminal.tables import counted
from headwater.optional import require_extras

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMANDS = Noun()


@COMMANDS.command("check")
def check(
    session: Session,
    file: File = None,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Plan the queries with Spark, to check their columns.")
    ] = True,
) -> None:
    """Check the app of a file without running it: its imports, its inputs and its columns.

    Spark is started only if nothing else is wrong, to plan the queries on topics without rows. Nothing is written to the
    log or to a sink. Ends with 1 if the app could not run.
    """
    let_pandas_in()
    require_extras("spark")
    from headwater.apps.app_file import load_app
    from headwater.apps.check import problems

    app = load_app(chosen_file(session, file))
    app.log = session.flags.log or app.log
    started: list[SparkSession] = []

    def start_spark() -> SparkSession:
        from headwater.spark.session import session as spark_session

        session.say("Starting Spark …")
        started.append(spark_session(app.name, master="local[1]"))
        return started[0]

    try:
        found = problems(app, start_spark=start_spark if spark else None)
    finally:
        if started:
            started[0].stop()
    if session.flags.verbose:
        for one in found:
            session.say(one.trace)
    records = [{"name": one.name, "message": one.message} for one in found]
    lines = [f"{session.paint('✗', 'red')} {one.message}" for one in found]
    session.show({"ok": not found, "app": app.name, "columns": bool(started), "problems": records}, lines)
    if found:
        raise typer.Exit(1)
    done = "can run" if started else "has no unknown input; its columns were not checked"
    session.say(f"{app.name}: {counted(len(app.queries), 'query')}. The app {done}.")
