"""`headwater dlq`: dead letters listed, looked at, put back to their topics, and set aside."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.arguments import DryRun, Yes, known_topics
from headwater.cli.asking import confirm
from headwater.cli.commands import command, noun
from headwater.cli.selecting import Contains, Letters, Offset, Query, Reason, Since, Until, parse_rate, selection_of
from headwater.cli.session import Record, Session
from headwater.cli.tables import Column
from headwater.cli.wording import counted, iso, shown
from headwater.errors import TopicNotFound

if TYPE_CHECKING:
    from headwater.log import EmbeddedLog
    from headwater.log.letters import Found, Selection
    from headwater.log.redrive import Outcome

REFUSALS_SHOWN_MAX = 5


def register(app: typer.Typer) -> None:
    group = noun(app, "dlq", "Dead letters: look at what was given up, and put it back.")
    command(group, "list", "ls")(list_letters)
    command(group, "show")(show)
    command(group, "redrive")(redrive)
    command(group, "park")(park)


# -- list -------------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Count:
    """The letters of one topic that were given up for one reason."""

    states: Counter[str] = field(default_factory=Counter)
    oldest_us: int | None = None
    newest_us: int | None = None

    def add(self, found: Found) -> None:
        self.states[found.state] += 1
        at = found.letter.at_us
        self.oldest_us = at if self.oldest_us is None else min(self.oldest_us, at)
        self.newest_us = at if self.newest_us is None else max(self.newest_us, at)

    def record(self, topic: str, reason: str) -> Record:
        states = {name: self.states[name] for name in ("open", "redriven", "parked")}
        times = {"oldest_at": iso(self.oldest_us), "newest_at": iso(self.newest_us)}
        return {"topic": topic, "reason": reason, "letters": self.states.total(), **states, **times}


def list_letters(
    session: Session,
    topic: Annotated[str | None, typer.Argument(help="Only this topic.", metavar="TOPIC")] = None,
) -> None:
    """List dead-letter topics, with the reasons and what has become of the letters."""
    from headwater.log.letters import letter_topic, letter_topics, read_letters

    counts: dict[tuple[str, str], _Count] = {}
    with session.log() as log:
        for name in letter_topics(log) if topic is None else [letter_topic(log, topic).name]:
            for some in read_letters(log, letter_topic(log, name)):
                for found in some:
                    counts.setdefault((name, found.letter.error), _Count()).add(found)
    columns = [
        Column(title="TOPIC", cut=True),
        Column(title="REASON", cut=True),
        *(Column(title=title, right=True) for title in ("LETTERS", "OPEN", "REDRIVEN", "PARKED")),
        Column(title="OLDEST"),
        Column(title="NEWEST"),
    ]
    rows = [
        [
            name,
            reason,
            *(f"{number:,}" for number in _numbers(one)),
            shown(one.oldest_us)[:16],
            shown(one.newest_us)[:16],
        ]
        for (name, reason), one in sorted(counts.items())
    ]
    session.show_all([one.record(*key) for key, one in sorted(counts.items())], columns, rows)
    if not counts:
        session.say("There are no dead letters.")


def _numbers(one: _Count) -> tuple[int, ...]:
    return (one.states.total(), one.states["open"], one.states["redriven"], one.states["parked"])


# -- show -------------------------------------------------------------------------------------------------------------


def show(
    session: Session,
    topic: Letters,
    reason: Reason = None,
    query: Query = None,
    since: Since = None,
    until: Until = None,
    offset: Offset = None,
    contains: Contains = None,
    state: Annotated[
        str | None, typer.Option("--state", help="Only open, redriven or parked letters.", metavar="STATE")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", help="At most so many; by default all.", min=0, metavar="N")
    ] = None,
) -> None:
    """Show letters: where the row stood, why it was given up, and the row itself."""
    selection = selection_of(reason, query, since, until, offset, contains, state)
    with session.log() as log:
        found = list(islice(_selected(log, topic, selection), count))
    if session.output != "table":
        session.show_all([_record(one) for one in found], [], [])
    for one in found if session.output == "table" else ():
        for line in _paragraph(session, one):
            session.write(line)
    if not found:
        session.say("No letter is like that." if session.output == "table" else "There are none.")


def _selected(log: EmbeddedLog, topic: str, selection: Selection) -> Iterator[Found]:
    from headwater.log.letters import letter_topic, read_letters

    for some in read_letters(log, letter_topic(log, topic)):
        yield from filter(selection.includes, some)


def _record(found: Found) -> Record:
    letter, status = found.letter, found.status
    return {
        "letter": {"partition": found.place.partition, "offset": found.place.offset},
        "state": found.state,
        "state_at": iso(None if status is None else status.at_us),
        "to": None if status is None else status.to,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "error": letter.error,
        "message": letter.message,
        "attempt": letter.attempt,
        "query": letter.query,
        "at": iso(letter.at_us),
        "key": _bytes(letter.key),
        "value": _bytes(letter.value),
        "row": letter.row,
        "headers": None if letter.headers is None else {name: _bytes(value) for name, value in letter.headers},
    }


# Any: JSON; bytes as the rest of the command line writes them.
def _bytes(value: bytes | None) -> Any:
    import base64

    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _paragraph(session: Session, found: Found) -> list[str]:
    letter, status = found.letter, found.status
    place = f"{found.place.partition}/{found.place.offset}"
    became = (
        "" if status is None else f"  {status.state} {shown(status.at_us)}" + (f" to {status.to}" if status.to else "")
    )
    facts = {
        "row of": f"{letter.topic}[{letter.partition}]@{letter.offset}",
        "reason": f"{letter.error}: {_printable(letter.message)}",
        "given up": f"{shown(letter.at_us)}, attempt {letter.attempt}"
        + (f", by {letter.query}" if letter.query else ""),
        "key": None if letter.key is None else _readable(letter.key),
        "value": None if letter.value is None else _readable(letter.value),
        "row": None if letter.row is None else _printable(letter.row),
        "headers": ", ".join(f"{name}={_readable(value or b'')}" for name, value in letter.headers or ()) or None,
    }
    lines = [f"  {name:<8}  {value}" for name, value in facts.items() if value is not None]
    return [session.paint(f"letter {place}", "bold") + became, *lines]


def _readable(value: bytes) -> str:
    """Bytes for people: text where they are text, with what a terminal would act upon written out.

    >>> _readable(b"caf\\xc3\\xa9"), _readable(b"\\x1b[2J"), _readable(b"\\xff\\x00")
    ('café', '\\\\x1b[2J', '0xff00')
    """
    try:
        return _printable(value.decode())
    except UnicodeDecodeError:
        return "0x" + value.hex()


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


# -- redrive and park -------------------------------------------------------------------------------------------------


def redrive(
    session: Session,
    topic: Letters,
    to: Annotated[
        str | None, typer.Option("--to", help="To this topic instead.", metavar="TOPIC", autocompletion=known_topics)
    ] = None,
    reason: Reason = None,
    query: Query = None,
    since: Since = None,
    until: Until = None,
    offset: Offset = None,
    contains: Contains = None,
    rate: Annotated[
        str | None, typer.Option("--rate", help="At most so many rows: 100/s, 30/min.", metavar="N/s")
    ] = None,
    attempts_max: Annotated[
        int | None,
        typer.Option("--attempts-max", help="Park what has failed so often already.", min=1, metavar="N"),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Put the rows of open letters back to their topic, each of them once.

    A letter is put back once, also when this command is killed and repeated, or runs twice at the same time.
    """
    from headwater.log.redrive import redrive

    selection = selection_of(reason, query, since, until, offset, contains, None)
    speed = None if rate is None else parse_rate(rate)
    with session.log(write=not dry_run) as log:
        _check_letters(log, topic)
        outcome = redrive(log, topic, selection, to=to, attempts_max=attempts_max, rate=speed, dry_run=True)
        if not dry_run and outcome.changed:
            confirm(session, f"{_sentence(outcome, 'This puts', 'parks', to=to)}.", yes=yes)
            with _progress(session, "Putting back", outcome.seen) as tell:
                outcome = redrive(log, topic, selection, to=to, attempts_max=attempts_max, rate=speed, tell=tell)
    _tell_outcome(session, outcome, dry_run=dry_run)
    begin = "Would put" if dry_run else "Put"
    session.say(f"{_sentence(outcome, begin, 'park' if dry_run else 'parked', to=to)}." + _untouched(dry_run))
    if outcome.refused:
        _warn_refused(session, outcome)
        raise typer.Exit(1)


def park(
    session: Session,
    topic: Letters,
    reason: Reason = None,
    query: Query = None,
    since: Since = None,
    until: Until = None,
    offset: Offset = None,
    contains: Contains = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take parked letters up again.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Set open letters aside, so that `redrive` leaves them alone."""
    from headwater.log.redrive import park

    selection = selection_of(reason, query, since, until, offset, contains, None)
    with session.log(write=not dry_run) as log:
        _check_letters(log, topic)
        outcome = park(log, topic, selection, undo=undo, dry_run=True)
        verb = "opens" if undo else "parks"
        if not dry_run and outcome.changed:
            confirm(session, f"This {verb} {counted(outcome.changed, 'letter')}.", yes=yes)
            outcome = park(log, topic, selection, undo=undo)
    _tell_outcome(session, outcome, dry_run=dry_run)
    verb = ("Would open" if undo else "Would park") if dry_run else ("Opened" if undo else "Parked")
    session.say(f"{verb} {counted(outcome.changed, 'letter')}." + _untouched(dry_run))


def _untouched(dry_run: bool) -> str:
    return " Nothing was changed." if dry_run else ""


def _check_letters(log: EmbeddedLog, topic: str) -> None:
    """Name the topic that a person meant where it has no letters yet."""
    from headwater.log.letters import letter_topic

    try:
        letter_topic(log, topic)
    except TopicNotFound:
        log.topic(topic)  # a name that is nowhere is the mistake
        raise


def _sentence(outcome: Outcome, begin: str, parked: str, *, to: str | None) -> str:
    text = f"{begin} {counted(outcome.redriven.total(), 'row')} back" + (f" to {to!r}" if to else "")
    return text + (f" and {parked} {counted(outcome.parked.total(), 'letter')}" if outcome.parked else "")


def _tell_outcome(session: Session, outcome: Outcome, *, dry_run: bool) -> None:
    counters = {"redriven": outcome.redriven, "parked": outcome.parked, "open": outcome.unparked}
    lines = [(state, reason, number) for state, found in counters.items() for reason, number in sorted(found.items())]
    records = [{"state": state, "reason": why, "letters": count, "done": not dry_run} for state, why, count in lines]
    columns = [Column(title="BECOMES"), Column(title="REASON", cut=True), Column(title="LETTERS", right=True)]
    session.show_all(records, columns, [[state, reason, f"{number:,}"] for state, reason, number in lines])


def _warn_refused(session: Session, outcome: Outcome) -> None:
    for refusal in outcome.refused[:REFUSALS_SHOWN_MAX]:
        session.warn(
            f"letter {refusal.place.partition}/{refusal.place.offset} stays open: {refusal.why.replace('`to`', '`--to`')}"
        )
    more = len(outcome.refused) - REFUSALS_SHOWN_MAX
    if more > 0:
        session.warn(f"{counted(more, 'more letter')} like that.")


@contextmanager
def _progress(session: Session, title: str, total: int) -> Iterator[Callable[[Outcome], None]]:
    """A bar over the letters looked at, on a terminal."""
    if not session.shows_progress:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(file=sys.stderr, no_color=session.config.color == "never")
    parts = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn()]
    with Progress(
        *parts, TextColumn("{task.fields[done]}"), TimeElapsedColumn(), console=console, transient=True
    ) as bar:
        task = bar.add_task(title, total=total, done="")
        yield lambda outcome: bar.update(task, completed=outcome.seen, done=f"{outcome.redriven.total():,} rows")
