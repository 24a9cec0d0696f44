"""`headwater worker`: run the workers that a Python file declares."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.cli.terminal.interrupts import on_interrupt
from headwater.cli.terminal.tables import columns
from headwater.errors import ArgumentInvalid

if TYPE_CHECKING:
    from headwater.queues import Worker

COMMANDS = Noun("worker", "Functions that process the messages of queues.")
SHOW_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class WorkerResult:
    """What one worker did, from its start to its end."""

    worker: str
    queue: str
    group: str
    taken: int
    done: int
    failed: int
    lost: int
    seconds: float
    per_second: float


@COMMANDS.command("run")
def run(
    session: Session,
    file: Annotated[str, typer.Argument(help="A Python file with functions under @log.worker.", metavar="FILE")],
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Run this function alone; may be repeated.", metavar="NAME")
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency", help="Calls at once of each worker, instead of the declared.", min=1, metavar="N"
        ),
    ] = None,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="End once all messages are processed, also scheduled ones.")
    ] = False,
) -> None:
    """Run the workers of a file until Ctrl-C: each message is a call, and is acknowledged when the call returns.

    A call that fails is repeated as the worker's `retries` say, and then a dead letter. Ctrl-C and SIGTERM let the calls
    that run end, and return other messages; a second one does not wait. Start it in as many processes as you like.
    """
    workers = _workers(file, only or ())
    if concurrency is not None:
        for worker in workers:
            worker.concurrency = concurrency
    failures: list[BaseException] = []

    def work(worker: Worker) -> None:
        try:
            if session.flags.log is None:
                worker.run(until_empty=until_empty)
            else:
                with session.log(create=True, write=True) as log:
                    worker.run(until_empty=until_empty, log=log)
        except BaseException as error:
            failures.append(error)
            for each in workers:
                each.stop()

    def stop() -> None:
        if any(worker.stopping for worker in workers):
            raise KeyboardInterrupt
        session.say("Stopping: the calls that run come to their end. Ctrl-C again does not wait.")
        for worker in workers:
            worker.stop()

    for worker in workers:
        calls = "" if worker.concurrency == 1 else f", {worker.concurrency} calls at once"
        group = "" if worker.group == "default" else f" as group {worker.group}"
        session.say(f"{worker.__name__}: queue {worker.queue}{group}{calls}")
    # Daemons, so that a second Ctrl-C ends the process: the leases of its messages end with it.
    threads = [threading.Thread(target=work, args=(each,), name=each.__name__, daemon=True) for each in workers]
    began = time.monotonic()
    with on_interrupt(stop):
        for thread in threads:
            thread.start()
        _show(session, workers, threads)
    seconds = time.monotonic() - began
    if failures:
        raise failures[0]
    found = [_result(worker, seconds) for worker in workers]
    rows = [
        [
            each.worker,
            each.queue,
            *(f"{count:,}" for count in (each.taken, each.done, each.failed, each.lost)),
            f"{each.per_second:,.0f}",
        ]
        for each in found
    ]
    session.show_all(found, columns("WORKER…", "QUEUE…", ">TAKEN", ">DONE", ">FAILED", ">LOST", ">PER SECOND"), rows)


def _workers(file: str, only: list[str] | tuple[str, ...]) -> list[Worker]:
    """The workers that a file declares, or those of them that were named."""
    from headwater.apps.app_file import load_module
    from headwater.queues import Worker

    module = load_module(Path(file))
    found = {value.__name__: value for value in vars(module).values() if isinstance(value, Worker)}
    if not found:
        expected = 'a file with a worker: a function under `@log.worker("jobs")`'
        raise ArgumentInvalid(name="FILE", value=file, expected=expected)
    for name in only:
        if name not in found:
            raise ArgumentInvalid(name="--only", value=name, expected=f"one of {', '.join(found)}")
    return [worker for name, worker in found.items() if not only or name in only]


def _show(session: Session, workers: list[Worker], threads: list[threading.Thread]) -> None:
    """Show what the workers have done until all have ended; in a pipe or with `-q` nothing is shown."""
    if not session.shows_progress:
        for thread in threads:
            while thread.is_alive():
                thread.join(SHOW_SECONDS)  # with a limit, so that a signal is handled
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn

    console = Console(stderr=True, no_color=session.config.color == "never")
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), console=console, transient=True) as progress:
        tasks = {worker: progress.add_task(worker.__name__, total=None) for worker in workers}
        at, before = time.monotonic(), dict.fromkeys(workers, 0)
        while any(thread.is_alive() for thread in threads):
            threads[0].join(SHOW_SECONDS)
            now = time.monotonic()
            for worker, task in tasks.items():
                done = worker.progress
                rate = (done.done - before[worker]) / (now - at)
                counts = f"{done.done:,} done, {rate:,.0f} per second, {done.running} running"
                wrong = [f"{count:,} {what}" for count, what in ((done.failed, "failed"), (done.lost, "lost")) if count]
                progress.update(task, description=f"{worker.__name__}: {', '.join([counts, *wrong])}")
            if now - at > 3:
                at, before = now, {worker: worker.progress.done for worker in workers}


def _result(worker: Worker, seconds: float) -> WorkerResult:
    done = worker.progress
    return WorkerResult(
        worker=worker.__name__,
        queue=worker.queue,
        group=worker.group,
        taken=done.taken,
        done=done.done,
        failed=done.failed,
        lost=done.lost,
        seconds=round(seconds, 3),
        per_second=round(done.done / seconds, 1) if seconds else 0.0,
    )
