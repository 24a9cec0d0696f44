"""`headwater dlq`: dead letters listed, shown, redriven to their topics, and parked."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.arguments import DryRun, Yes, known_topics
from headwater.cli.asking import confirm
from headwater.cli.commands import command, noun
from headwater.cli.session import Session
from headwater.cli.tables import Column
from headwater.cli.wording import counted, shown
from headwater.errors import ArgumentInvalid

if TYPE_CHECKING:
    from headwater.log.dead_letters import Selection, StoredDeadLetter
    from headwater.log.redrive import Outcome
    from headwater.services.dead_letters import Redrive

REFUSALS_SHOWN_MAX = 5
PAGE = 1_000
PROGRESS_SECONDS = 0.2
_RATE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?:/\s*(?P<unit>s|min|h))?")
_PER_SECOND = {"s": 1.0, "min": 60.0, "h": 3600.0}


def register(app: typer.Typer) -> None:
    group = noun(app, "dlq", "Dead letters: look at rows that failed, and redrive them.")
    command(group, "list", "ls")(list_letters)
    command(group, "show")(show)
    command(group, "redrive")(redrive)
    command(group, "park")(park)


# -- which dead letters a command is about ----------------------------------------------------------------------------


def _letters_of(context: typer.Context, incomplete: str) -> list[str]:
    return [name for name in known_topics(context, incomplete) if name.endswith(".dlq")]


Letters = Annotated[
    str, typer.Argument(help="A topic, or its dead-letter topic.", metavar="TOPIC", autocompletion=_letters_of)
]
Reason = Annotated[
    list[str] | None,
    typer.Option("--reason", "-r", help="Only this class of error; may be repeated.", metavar="ERROR"),
]
Query = Annotated[str | None, typer.Option("--query", help="Only what this query, queue or group gave up.")]
Since = Annotated[
    str | None, typer.Option("--since", help="Only letters from @TIME (UTC) or @-1h on.", metavar="@TIME")
]
Until = Annotated[str | None, typer.Option("--until", help="Only letters before @TIME or @-1h.", metavar="@TIME")]
Offset = Annotated[
    list[str] | None,
    typer.Option("--offset", "-o", help="Only these letters: 7, or 7-12; may be repeated.", metavar="N|N-M"),
]
Contains = Annotated[str | None, typer.Option("--contains", help="Only letters whose message has this text.")]


def selection_of(
    reason: Iterable[str] | None,
    query: str | None,
    since: str | None,
    until: str | None,
    offset: Iterable[str] | None,
    contains: str | None,
    state: str | None,
) -> Selection:
    from headwater.log.dead_letters import STATES, Selection

    states = [one for one in STATES if one == state]
    if state is not None and not states:
        raise ArgumentInvalid(name="--state", value=state, expected=", ".join(STATES))
    return Selection(
        reasons=tuple(reason or ()),
        query=query,
        since_us=_time(since, "--since"),
        until_us=_time(until, "--until"),
        offsets=tuple(map(_offsets, offset or ())),
        text=contains,
        states=tuple(states),
    )


def _time(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    from headwater.services.positions import parse_position

    return parse_position(text if text.startswith("@") else f"@{text}", name=name).time_us


def _offsets(text: str) -> range:
    """Offsets as people write them.

    >>> _offsets("7"), _offsets("7-12")
    (range(7, 8), range(7, 13))
    """
    first, _, last = text.partition("-")
    if not first.isdecimal() or not (last or first).isdecimal() or int(last or first) < int(first):
        raise ArgumentInvalid(name="--offset", value=text, expected="a letter's offset (7), or two with a dash (7-12)")
    return range(int(first), int(last or first) + 1)


def parse_rate(text: str) -> float:
    """Rows per second.

    >>> parse_rate("100/s"), parse_rate("30/min"), parse_rate("5")
    (100.0, 0.5, 5.0)
    """
    match = _RATE.fullmatch(text.strip())
    if match is None or float(match["number"]) <= 0:
        raise ArgumentInvalid(name="--rate", value=text, expected='a rate above 0, such as "100/s" or "30/min"')
    return float(match["number"]) / _PER_SECOND[match["unit"] or "s"]


# -- list and show ----------------------------------------------------------------------------------------------------


def list_letters(
    session: Session,
    topic: Annotated[str | None, typer.Argument(help="Only this topic.", metavar="TOPIC")] = None,
) -> None:
    """List dead-letter topics, with the reasons and the states of their dead letters."""
    from headwater.services.json_form import to_json

    with session.services() as services:
        service = services.dead_letters
        names = service.topics() if topic is None else [service.page(topic, limit=0).topic]
        found = [(name, reason) for name in names for reason in sorted(service.reasons(name), key=lambda one: one.name)]
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
            reason.name,
            *(f"{number:,}" for number in (reason.letters, *reason.states.values())),
            shown(reason.first_us)[:16],
            shown(reason.last_us)[:16],
        ]
        for name, reason in found
    ]
    session.show_all([{"topic": name, **to_json(reason)} for name, reason in found], columns, rows)
    if not found:
        session.say("There are no dead letters.")


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
    from headwater.services.json_form import to_json

    selection = selection_of(reason, query, since, until, offset, contains, state)
    found: list[StoredDeadLetter] = []
    with session.services() as services:
        while count is None or len(found) < count:
            size = PAGE if count is None else min(PAGE, count - len(found))
            page = services.dead_letters.page(topic, selection, order="oldest", skip=len(found), limit=size)
            found += page.dead_letters
            if len(page.dead_letters) < size:
                break
    if session.output != "table":
        session.show_all([to_json(one) for one in found], [], [])
    for one in found if session.output == "table" else ():
        for line in _paragraph(session, one):
            session.write(line)
    if not found:
        session.say("No letter is like that." if session.output == "table" else "There are none.")


def _paragraph(session: Session, found: StoredDeadLetter) -> list[str]:
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
    from headwater.apps.errors import QueryFailed

    selection = selection_of(reason, query, since, until, offset, contains, None)
    speed = None if rate is None else parse_rate(rate)
    with session.services(write=not dry_run) as services:
        service = services.dead_letters
        asked = partial(service.redrive, topic, selection, to=to, attempts_max=attempts_max, rate=speed)
        outcome = asked(dry_run=True).outcome
        if not dry_run and outcome.changed:
            confirm(session, f"{_sentence(outcome, 'This puts', 'parks', to=to)}.", yes=yes)
            with _progress(session, "Redriving", outcome.seen) as tell:
                job: Redrive | None = asked(wait_seconds=PROGRESS_SECONDS)
                while job is not None and job.running:
                    tell(job.outcome)
                    job = service.redrive_progress(topic, wait_seconds=PROGRESS_SECONDS)
            if job is None or job.state == "failed":
                raise QueryFailed(query="redrive", why=job.error if job else "the server was started again meanwhile")
            outcome = job.outcome
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
    selection = selection_of(reason, query, since, until, offset, contains, None)
    with session.services(write=not dry_run) as services:
        service = services.dead_letters
        outcome = service.park(topic, selection, undo=undo, dry_run=True)
        verb = "opens" if undo else "parks"
        if not dry_run and outcome.changed:
            confirm(session, f"This {verb} {counted(outcome.changed, 'letter')}.", yes=yes)
            outcome = service.park(topic, selection, undo=undo)
    _tell_outcome(session, outcome, dry_run=dry_run)
    verb = ("Would open" if undo else "Would park") if dry_run else ("Opened" if undo else "Parked")
    session.say(f"{verb} {counted(outcome.changed, 'letter')}." + _untouched(dry_run))


def _untouched(dry_run: bool) -> str:
    return " Nothing was changed." if dry_run else ""


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
