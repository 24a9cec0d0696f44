"""`headwater dlq`: dead letters listed, shown, redriven to their topics, and parked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.arguments import DryRun, Yes, known_topics
from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.cli.terminal.progress import progress_bar
from headwater.cli.terminal.tables import columns, counted, short_time
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


COMMANDS = Noun("dlq", "Dead letters: look at rows that failed, and redrive them.")


# -- which dead letters a command is about ----------------------------------------------------------------------------


def _known_dead_letter_topics(context: typer.Context, incomplete: str) -> list[str]:
    return [name for name in known_topics(context, incomplete) if name.endswith(".dlq")]


DeadLetterTopic = Annotated[
    str,
    typer.Argument(
        help="A topic, or its dead-letter topic.", metavar="TOPIC", autocompletion=_known_dead_letter_topics
    ),
]


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Options of `show`, `redrive` and `park` that select dead letters."""

    reason: Annotated[
        list[str] | None,
        typer.Option("--reason", "-r", help="Only this class of error; may be repeated.", metavar="ERROR"),
    ] = None
    query: Annotated[str | None, typer.Option("--query", help="Only dead letters of this query, queue or group.")] = (
        None
    )
    since: Annotated[
        str | None, typer.Option("--since", help="Only dead letters from @TIME (UTC) or @-1h on.", metavar="@TIME")
    ] = None
    until: Annotated[
        str | None, typer.Option("--until", help="Only dead letters before @TIME or @-1h.", metavar="@TIME")
    ] = None
    offset: Annotated[
        list[str] | None,
        typer.Option(
            "--offset", "-o", help="Only these offsets of dead letters: 7, or 7-12; may be repeated.", metavar="N|N-M"
        ),
    ] = None
    contains: Annotated[
        str | None, typer.Option("--contains", help="Only dead letters whose message has this text.")
    ] = None

    def selection(self, state: str | None = None) -> Selection:
        from headwater.log.dead_letters import STATES, Selection

        states = [one for one in STATES if one == state]
        if state is not None and not states:
            raise ArgumentInvalid(name="--state", value=state, expected=", ".join(STATES))
        return Selection(
            reasons=tuple(self.reason or ()),
            query=self.query,
            since_us=_time(self.since, "--since"),
            until_us=_time(self.until, "--until"),
            offsets=tuple(map(_offsets, self.offset or ())),
            text=self.contains,
            states=tuple(states),
        )


def _time(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    from headwater.services.positions import parse_position

    return parse_position(text if text.startswith("@") else f"@{text}", name=name).time_us


def _offsets(text: str) -> range:
    """A range of offsets from text.

    >>> _offsets("7"), _offsets("7-12")
    (range(7, 8), range(7, 13))
    """
    first, _, last = text.partition("-")
    if not first.isdecimal() or not (last or first).isdecimal() or int(last or first) < int(first):
        expected = "the offset of a dead letter (7), or two with a dash (7-12)"
        raise ArgumentInvalid(name="--offset", value=text, expected=expected)
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


@COMMANDS.command("list", "ls")
def list_reasons(
    session: Session,
    topic: Annotated[str | None, typer.Argument(help="Only this topic.", metavar="TOPIC")] = None,
) -> None:
    """List dead-letter topics, with the reasons and the states of their dead letters."""
    from headwater.services.json_form import to_json

    with session.services() as services:
        service = services.dead_letters
        names = service.topics() if topic is None else [service.page(topic, limit=0).topic]
        found = [(name, reason) for name in names for reason in sorted(service.reasons(name), key=lambda one: one.name)]
    rows = [
        [
            name,
            reason.name,
            *(f"{number:,}" for number in (reason.total, *reason.states.values())),
            short_time(reason.first_us)[:16],
            short_time(reason.last_us)[:16],
        ]
        for name, reason in found
    ]
    titles = columns("TOPIC…", "REASON…", ">TOTAL", ">OPEN", ">REDRIVEN", ">PARKED", "OLDEST", "NEWEST")
    session.show_all([{"topic": name, **to_json(reason)} for name, reason in found], titles, rows)
    if not found:
        session.say("There are no dead letters.")


@COMMANDS.command("show")
def show(
    session: Session,
    topic: DeadLetterTopic,
    filters: Filter,
    state: Annotated[
        str | None, typer.Option("--state", help="Only open, redriven or parked dead letters.", metavar="STATE")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", help="At most so many; by default all.", min=0, metavar="N")
    ] = None,
) -> None:
    """Show dead letters: where the row stood, why it failed, and the row itself."""
    selection = filters.selection(state)
    found: list[StoredDeadLetter] = []
    with session.services() as services:
        while count is None or len(found) < count:
            size = PAGE if count is None else min(PAGE, count - len(found))
            page = services.dead_letters.page(topic, selection, order="oldest", skip=len(found), limit=size)
            found += page.dead_letters
            if len(page.dead_letters) < size:
                break
    session.show_all(found, [], [])
    for one in found if session.output == "table" else ():
        for line in _paragraph(session, one):
            session.write(line)
    if not found:
        session.say("No dead letter is selected.")


def _paragraph(session: Session, found: StoredDeadLetter) -> list[str]:
    letter, status = found.letter, found.status
    place = f"{found.place.partition}/{found.place.offset}"
    state = ""
    if status is not None:
        state = f"  {status.state} {short_time(status.at_us)}" + (f" to {status.to}" if status.to else "")
    facts = {
        "row of": f"{letter.topic}[{letter.partition}]@{letter.offset}",
        "reason": f"{letter.error}: {_printable(letter.message)}",
        "failed": f"{short_time(letter.at_us)}, attempt {letter.attempt}"
        + (f", by {letter.query}" if letter.query else ""),
        "key": None if letter.key is None else _readable(letter.key),
        "value": None if letter.value is None else _readable(letter.value),
        "row": None if letter.row is None else _printable(letter.row),
        "headers": ", ".join(f"{name}={_readable(value or b'')}" for name, value in letter.headers or ()) or None,
    }
    lines = [f"  {name:<8}  {value}" for name, value in facts.items() if value is not None]
    return [session.paint(f"dead letter {place}", "bold") + state, *lines]


def _readable(value: bytes) -> str:
    """Bytes as printable text: UTF-8 with control characters escaped, or hexadecimal digits.

    >>> _readable(b"caf\\xc3\\xa9"), _readable(b"\\x1b[2J"), _readable(b"\\xff\\x00")
    ('café', '\\\\x1b[2J', '0xff00')
    """
    try:
        return _printable(value.decode())
    except UnicodeDecodeError:
        return "0x" + value.hex()


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


# -- redrive and park -------------------------------------------------------------------------------------------------


@COMMANDS.command("redrive")
def redrive(
    session: Session,
    topic: DeadLetterTopic,
    filters: Filter,
    to: Annotated[
        str | None, typer.Option("--to", help="To this topic instead.", metavar="TOPIC", autocompletion=known_topics)
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", help="At most so many rows: 100/s, 30/min.", metavar="N/s")
    ] = None,
    attempts_max: Annotated[
        int | None,
        typer.Option("--attempts-max", help="Park dead letters that have failed so often.", min=1, metavar="N"),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Append the rows of open dead letters to their topic again, each of them once.

    A row is redriven once, also if this command is killed and repeated, or runs twice at the same time.
    """
    from headwater.apps.errors import QueryFailed

    selection = filters.selection()
    speed = None if rate is None else parse_rate(rate)
    with session.services(write=not dry_run) as services:
        service = services.dead_letters
        call = partial(service.redrive, topic, selection, to=to, attempts_max=attempts_max, rate=speed)
        outcome = call(dry_run=True).outcome
        if not dry_run and outcome.changed:
            session.confirm(f"This {_sentence(outcome, 'redrives', 'parks', to=to)}.", yes=yes)
            with progress_bar(session, "Redriving", total=outcome.seen, in_bytes=False) as progress:
                job: Redrive | None = call(wait_seconds=PROGRESS_SECONDS)
                while job is not None and job.running:
                    progress(job.outcome.seen, outcome.seen, f"{job.outcome.redriven.total():,} rows")
                    job = service.redrive_progress(topic, wait_seconds=PROGRESS_SECONDS)
            if job is None or job.state == "failed":
                raise QueryFailed(query="redrive", why=job.error if job else "the server was started again meanwhile")
            outcome = job.outcome
    _show_outcome(session, outcome, dry_run=dry_run)
    verbs = ("Would redrive", "park") if dry_run else ("Redrove", "parked")
    session.say(f"{_sentence(outcome, *verbs, to=to)}." + (" Nothing was changed." if dry_run else ""))
    for refusal in outcome.refused[:REFUSALS_SHOWN_MAX]:
        place = f"{refusal.place.partition}/{refusal.place.offset}"
        session.warn(f"dead letter {place} stays open: {refusal.why.replace('`to`', '`--to`')}")
    if len(outcome.refused) > REFUSALS_SHOWN_MAX:
        session.warn(f"{counted(len(outcome.refused) - REFUSALS_SHOWN_MAX, 'more dead letter')} stay open.")
    if outcome.refused:
        raise typer.Exit(1)


@COMMANDS.command("park")
def park(
    session: Session,
    topic: DeadLetterTopic,
    filters: Filter,
    undo: Annotated[bool, typer.Option("--undo", help="Open parked dead letters again.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Park open dead letters, so that `redrive` leaves them alone."""
    selection = filters.selection()
    with session.services(write=not dry_run) as services:
        service = services.dead_letters
        outcome = service.park(topic, selection, undo=undo, dry_run=True)
        if not dry_run and outcome.changed:
            verb = "opens" if undo else "parks"
            session.confirm(f"This {verb} {counted(outcome.changed, 'dead letter')}.", yes=yes)
            outcome = service.park(topic, selection, undo=undo)
    _show_outcome(session, outcome, dry_run=dry_run)
    verb = ("Would open" if undo else "Would park") if dry_run else ("Opened" if undo else "Parked")
    session.say(f"{verb} {counted(outcome.changed, 'dead letter')}." + (" Nothing was changed." if dry_run else ""))


def _sentence(outcome: Outcome, redriven: str, parked: str, *, to: str | None) -> str:
    text = f"{redriven} {counted(outcome.redriven.total(), 'row')}" + (f" to {to!r}" if to else "")
    return text + (f" and {parked} {counted(outcome.parked.total(), 'dead letter')}" if outcome.parked else "")


def _show_outcome(session: Session, outcome: Outcome, *, dry_run: bool) -> None:
    counters = {"redriven": outcome.redriven, "parked": outcome.parked, "open": outcome.unparked}
    lines = [(state, reason, number) for state, found in counters.items() for reason, number in sorted(found.items())]
    records = [{"state": state, "reason": reason, "dead_letters": number} for state, reason, number in lines]
    rows = [[state, reason, f"{number:,}"] for state, reason, number in lines]
    session.show_all(records, columns("BECOMES", "REASON…", ">DEAD LETTERS"), rows, done=not dry_run)
