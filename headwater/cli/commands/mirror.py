"""`headwater mirror`: copy topics from one log to another."""

from __future__ import annotations

import os
import signal
import threading
from typing import Annotated

import typer

from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.cli.terminal.progress import progress_bar
from headwater.cli.terminal.tables import counted
from headwater.errors import ArgumentInvalid

COMMANDS = Noun()


@COMMANDS.command("mirror")
def mirror(
    session: Session,
    source: Annotated[str, typer.Argument(help="Address of the log to copy from.", metavar="SOURCE")],
    target: Annotated[
        str, typer.Argument(help="Address of the log to copy to; a folder is created.", metavar="TARGET")
    ],
    topics: Annotated[
        str, typer.Option("--topics", help="Only topics that match a pattern, such as 'shop.*'.", metavar="PATTERN")
    ] = "*",
    groups: Annotated[
        bool, typer.Option("--groups", help="Copy positions of groups, too: each goes on at the same row.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with rows that come, until Ctrl-C.")] = False,
    source_token_env: Annotated[
        str | None,
        typer.Option("--source-token-env", help="The environment variable with the source's token.", metavar="NAME"),
    ] = None,
    target_token_env: Annotated[
        str | None,
        typer.Option("--target-token-env", help="The environment variable with the target's token.", metavar="NAME"),
    ] = None,
) -> None:
    """Copy topics from one log to another, each row once.

    Schemas and settings are copied, too. After an interruption the same command goes on where it was.
    """
    import headwater.log
    from headwater.log.mirror import Mirror, MirrorProgress

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    with (
        headwater.log.open(source, create=False, read_only=False, token=_token(session, source_token_env)) as origin,
        headwater.log.open(target, config=session.config, token=_token(session, target_token_env)) as copy,
        progress_bar(session, "mirror", in_bytes=False) as show,
    ):

        def progressed(progress: MirrorProgress) -> None:
            show(progress.rows, progress.rows + progress.left, counted(progress.topics, "topic"))

        work = Mirror(origin, copy, topics=topics, groups=groups, on_progress=progressed)
        done = work.run(follow=follow, stop=stop)
    session.show(done)
    session.say(
        f"{counted(done.rows, 'row')} of {counted(done.topics, 'topic')} copied to {target}."
        + (f" About {counted(done.left, 'row')} left: the same command goes on with them." if done.left else "")
    )


def _token(session: Session, variable: str | None) -> str | None:
    if variable is None:
        return session.config.token
    if variable not in os.environ:
        raise ArgumentInvalid(
            name="token-env", value=variable, expected="the name of an environment variable that is set"
        )
    return os.environ[variable]
