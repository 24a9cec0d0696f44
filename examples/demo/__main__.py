"""`python -m demo`, with `examples` on the path; `make demo` does it."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from demo.director import Director, EndedEarly
from demo.screen import spark_told_apart, summary
from headwater.cli.session import Flags, Session
from headwater.cli.wording import counted
from headwater.errors import HeadwaterError

SECONDS_MIN = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parsed(arguments)
    session = Session.begin(Flags(no_color=options.no_color))
    with _place(options.dir, keep=options.keep) as folder:
        session.say(
            "Three apps of examples/ on one log: card fraud, click-through of ads, sensors. Ctrl-C ends it early."
        )
        try:
            holds = _run(session, folder, options.seconds)
        except EndedEarly:
            session.say("Ended before there was anything to check.")
            return 130
        except (HeadwaterError, TimeoutError) as error:
            session.warn(f"{error}\nWhat Spark said is in {folder / 'spark.log'} (with --keep).")
            return 1
        _tell_more(session, folder, kept=options.keep or options.dir is not None)
    return 0 if holds else 1


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description="Run the three example apps live, and check them.")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="N", help="about how long it takes (60)")
    parser.add_argument("--dir", type=Path, metavar="FOLDER", help="keep the data here")
    parser.add_argument("--keep", action="store_true", help="keep the temporary folder")
    parser.add_argument("--no-color", action="store_true", help="no colours")
    options = parser.parse_args(arguments)
    if options.seconds < SECONDS_MIN:
        parser.error(f"--seconds is at least {SECONDS_MIN:.0f}")
    if options.dir is not None and options.dir.exists() and any(options.dir.iterdir()):
        parser.error(f"--dir {options.dir} is not empty; the check needs a log of its own")
    return options


@contextlib.contextmanager
def _place(folder: Path | None, *, keep: bool) -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="headwater-demo-")) if folder is None else folder.absolute()
    made.mkdir(parents=True, exist_ok=True)
    before = Path.cwd()
    os.chdir(made)  # the lake of the sensors lies where the app is loaded
    try:
        yield made
    finally:
        os.chdir(before)
        if folder is None and not keep:
            shutil.rmtree(made, ignore_errors=True)


def _run(session: Session, folder: Path, seconds: float) -> bool:
    with spark_told_apart(folder / "spark.log"):
        director = Director(session, log=folder / "log", seconds=seconds)
        with _interruptible(director):
            outcomes = director.run()
    session.say("")
    summary(session, outcomes)
    wrong = [one.name for one in outcomes if not one.is_equal]
    session.say("")
    if wrong:
        session.warn(
            f"{', '.join(wrong)} differ from the recomputation: this is a bug. Please report it (with --keep)."
        )
        return False
    restarts = counted(director.restarts, "restart")
    text = f"{director.appended:,} rows in, {len(outcomes)} outputs, {restarts}: every output equals its recomputation."
    session.write(session.paint(text, "bold"))
    return True


@contextlib.contextmanager
def _interruptible(director: Director) -> Iterator[None]:
    """Ctrl-C ends the demo early, with its check; the second one does not wait."""

    def asked(number: int, frame: FrameType | None) -> None:
        if director.is_leaving:
            os._exit(130)
        director.leave()

    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell_more(session: Session, folder: Path, *, kept: bool) -> None:
    if not kept:
        session.say('Try next: `make demo ARGS="--keep"` keeps the data, to ask it with SQL.')
        return
    command = Path(sys.executable).with_name("headwater")
    with contextlib.suppress(ValueError):
        command = command.relative_to(Path(__file__).parents[2])
    here = f"{command} --log {folder / 'log'}"
    session.say("Try next:")
    session.say(f'  {here} sql "select * from big_spenders order by total desc limit 5"')
    session.say(f'  {here} sql "select sensor, count(*) from alarms group by all"')
    session.say(f"  {here} topic list")
    session.say(f"  {here} run examples/fraud.py    # goes on where it stopped")


if __name__ == "__main__":
    sys.exit(main())
