"""`headwater queue`: work queues, each message to one worker of each group."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.arguments import DryRun, Yes, known_topics, pairs_of
from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.cli.terminal.streams import is_terminal
from headwater.cli.terminal.tables import cell, columns, counted, short_time
from headwater.errors import ArgumentInvalid
from headwater.units import format_seconds, parse_seconds

if TYPE_CHECKING:
    from headwater.services import Services
    from headwater.services.queues import NewMessage, QueueGroup, QueueStatus, TakenMessage

COMMANDS = Noun("queue", "Work queues: each message goes to one worker of each group, and again if that worker fails.")

#: One call to put has so many messages of standard input.
LINES_MAX = 1_000
#: One call to take waits for so long; a longer wait is several.
WAIT_SECONDS = 20.0
#: The pause before a full queue is asked again.
FULL_SECONDS = 0.2
_NUMBERS = frozenset({"attempts_max", "prefetch", "length_max"})

Queue = Annotated[str, typer.Argument(help="Name of the queue.", metavar="QUEUE", autocompletion=known_topics)]
Receipts = Annotated[list[str], typer.Argument(help="What `queue take` printed for the message.", metavar="RECEIPT…")]
Group = Annotated[str, typer.Option("--group", "-g", help="The group; each group gets every message.", metavar="GROUP")]
Reason = Annotated[str, typer.Option("--reason", help="Why, for the dead letter.", metavar="TEXT")]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of a queue as options; those that are not given stay as they are."""

    lease: Annotated[
        str | None, typer.Option("--lease", help="How long a worker holds a message.", metavar="DURATION")
    ] = None
    attempts_max: Annotated[
        str | None,
        typer.Option("--attempts", help="Deliveries before a message is a dead letter, or none.", metavar="N"),
    ] = None
    count: Annotated[
        str | None,
        typer.Option("--count", help="What counts as a delivery: acquisitions or failures.", metavar="RULE"),
    ] = None
    single_active: Annotated[
        bool | None, typer.Option("--single-active/--all-active", help="One consumer at a time.")
    ] = None
    prefetch: Annotated[
        str | None, typer.Option("--prefetch", help="Messages that one consumer may hold, or none.", metavar="N")
    ] = None
    length_max: Annotated[
        str | None, typer.Option("--length", help="The most messages that wait, or none.", metavar="N")
    ] = None
    overflow: Annotated[
        str | None,
        typer.Option("--overflow", help="At that length: block, reject, drop_oldest or drop_newest.", metavar="WHAT"),
    ] = None
    ttl: Annotated[
        str | None, typer.Option("--ttl", help="How long a message may wait, or none.", metavar="DURATION")
    ] = None
    expired: Annotated[str | None, typer.Option("--expired", help="Then: dead_letter or drop.", metavar="WHAT")] = None
    deduplicate: Annotated[
        str | None,
        typer.Option("--deduplicate", help="The time in which an id is put once, or none.", metavar="DURATION"),
    ] = None
    delete_acknowledged: Annotated[
        bool | None,
        typer.Option(
            "--delete-acknowledged/--keep-acknowledged",
            help="Free the space of messages that all groups are done with.",
        ),
    ] = None

    # Any: each setting has its own type.
    def given(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                values[field.name] = _setting(field.name, value)
        return values


# Any: as above.
def _setting(name: str, value: Any) -> Any:
    if value == "none":
        return None
    if name in _NUMBERS:
        try:
            return int(value)
        except ValueError:
            raise ArgumentInvalid(name=name, value=value, expected="a whole number, or none for no limit") from None
    return value


# -- queues -----------------------------------------------------------------------------------------------------------


@COMMANDS.command("create")
def create(
    session: Session,
    queue: Queue,
    options: Options,
    body: Annotated[str, typer.Option("--body", help="What messages are: json or bytes.", metavar="KIND")] = "json",
    schema: Annotated[
        str | None,
        typer.Option("--schema", help='Messages are rows: "id int64, name string".', metavar="SCHEMA"),
    ] = None,
    priorities: Annotated[
        int, typer.Option("--priorities", help="Number of priorities; the highest comes first.", min=1, metavar="N")
    ] = 1,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="Keep the order of each key, also through redelivery.")
    ] = False,
) -> None:
    """Create a queue. One that exists with the same settings is left as it is."""
    from headwater.queues import QueueConfig
    from headwater.schema import parse_schema

    given = {"body": body, "priorities": priorities, "ordered": ordered, **options.given()}
    with session.services(create=True, write=True) as services:
        parsed = None if schema is None else parse_schema(schema)
        status = services.queues.create(queue, QueueConfig().changed(given), schema=parsed)
    session.show(status, [f"Queue {queue!r} is ready. Put a message: headwater queue put {queue} '{{\"task\": 1}}'"])


@COMMANDS.command("alter")
def alter(session: Session, queue: Queue, options: Options) -> None:
    """Change settings of a queue; processes that have it open follow at their next call."""
    given = options.given()
    if not given:
        raise typer.BadParameter("Give at least one setting to change, such as `--lease '1 minute'`.")
    with session.services(write=True) as services:
        status = services.queues.alter(queue, given)
    session.show(status, [f"{name} is now {_shown(getattr(status.settings, name))}" for name in given])


@COMMANDS.command("delete", "rm")
def delete(session: Session, queue: Queue, yes: Yes = False) -> None:
    """Delete a queue with its messages. Its dead letters stay."""
    with session.services(write=True) as services:
        length = services.queues.status(queue).length
        session.confirm(f"Queue {queue!r} is deleted with {counted(length, 'unfinished message')}.", yes=yes)
        services.queues.delete(queue)
    session.say(f"Queue {queue!r} is deleted.")


@COMMANDS.command("list", "ls")
def list_queues(session: Session) -> None:
    """List the queues with the counts of each group."""
    with session.services() as services:
        found = services.queues.list_queues()
    rows = [[status.name, *_counts(group), _letters(status)] for status in found for group in status.groups]
    session.show_all(found, columns("QUEUE…", *_TITLES, ">DEAD LETTERS"), rows)
    if not found:
        session.say("There are no queues yet: `headwater queue create jobs`.")


@COMMANDS.command("stats", "status")
def stats(session: Session, queue: Queue) -> None:
    """Show one queue: its settings, the counts of its groups, who takes from it, and what is bound to it."""
    from headwater.queues import QueueConfig

    with session.services() as services:
        found = services.queues.status(queue)
    usual = QueueConfig()
    shown = [
        f"{field.name} {_shown(value, field.name)}"
        for field in fields(usual)
        if (value := getattr(found.settings, field.name)) != getattr(usual, field.name)
        or field.name in ("body", "lease", "attempts_max")
    ]
    lines = [session.paint(found.name, "bold"), f"  settings      {', '.join(shown)}"]
    lines += [f"  dead letters  {_letters(found)}" + (f" in {found.dead_letter_topic}" if found.dead_letters else "")]
    lines += [
        f"  bound to      {each.exchange}: {each.pattern or ' '.join(f'{k}={v}' for k, v in each.headers.items())}"
        for each in found.bindings
    ]
    lines += ["", *session.table(columns(*_TITLES), [_counts(group) for group in found.groups])]
    consumers = [
        [group.name, each.name, f"{each.held:,}", short_time(each.taken_us)]
        for group in found.groups
        for each in group.consumers
    ]
    if consumers:
        lines += ["", *session.table(columns("GROUP…", "CONSUMER…", ">HOLDS", "TOOK LAST"), consumers)]
    session.show(found, lines)


# -- messages ---------------------------------------------------------------------------------------------------------


@COMMANDS.command("put")
def put(
    session: Session,
    queue: Queue,
    bodies: Annotated[
        list[str] | None,
        typer.Argument(
            help="Messages as JSON; without them, a message of each line of standard input.", metavar="[BODY]…"
        ),
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="The messages are plain text, not JSON.")] = False,
    key: Annotated[str | None, typer.Option("--key", help="The key whose order is kept.", metavar="KEY")] = None,
    id: Annotated[str | None, typer.Option("--id", help="An id that is put once.", metavar="ID")] = None,
    priority: Annotated[int, typer.Option("--priority", help="0 is the lowest.", metavar="N")] = 0,
    delay: Annotated[
        str | None, typer.Option("--delay", help="Do not deliver before this time has passed.", metavar="DURATION")
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", help="Do not deliver before 2026-03-01T12:00 (UTC).", metavar="TIME")
    ] = None,
    ttl: Annotated[str | None, typer.Option("--ttl", help="How long the message may wait.", metavar="DURATION")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", help="A header; may be repeated.", metavar="NAME=VALUE")
    ] = None,
) -> None:
    """Put messages, and print their ids once they are durable."""
    from headwater.services.queues import NewMessage

    headers = {name: value.encode() for name, value in pairs_of("--header", header or ()).items()}
    if id is not None and len(bodies or ()) != 1:
        raise typer.BadParameter("`--id` is for one message: give its body as an argument.")
    with session.services(write=True) as services:
        status = services.queues.settings(queue)
        plain = text or status.settings.body == "bytes"
        count = 0
        for some in _given_bodies(bodies):
            messages = [
                NewMessage(
                    body=_body(each, plain),
                    key=key,
                    id=id,
                    headers=headers,
                    priority=priority,
                    delay=None if delay is None else parse_seconds(delay, name="delay"),
                    deliver_at=at,
                    ttl=None if ttl is None else parse_seconds(ttl, name="ttl"),
                )
                for each in some
            ]
            ids = _put(services, queue, messages)
            count += len(ids)
            if session.output != "table" or bodies:
                for each in ids:
                    session.write(json.dumps({"id": each}) if session.output != "table" else each)
    session.say(f"{counted(count, 'message')} put into {queue!r}.")


@COMMANDS.command("take")
def take(
    session: Session,
    queue: Queue,
    n: Annotated[int, typer.Option("-n", help="The most messages to take.", min=1, metavar="N")] = 1,
    group: Group = "default",
    wait: Annotated[str, typer.Option("--wait", help="Wait so long for a message.", metavar="DURATION")] = "0 s",
    lease: Annotated[
        str | None, typer.Option("--lease", help="Hold the messages for so long.", metavar="DURATION")
    ] = None,
    ack: Annotated[bool, typer.Option("--ack", help="Acknowledge the messages once they are printed.")] = False,
) -> None:
    """Take messages, and print each with the receipt by which it is acknowledged.

    A message that is not acknowledged in time is delivered again. With --ack it never is, even if the reader of the
    output has failed.
    """
    with session.services(write=True) as services:
        deadline = time.monotonic() + parse_seconds(wait, name="wait")
        while True:
            seconds = min(max(0.0, deadline - time.monotonic()), WAIT_SECONDS)
            found = services.queues.take(
                queue,
                n=n,
                group=group,
                lease=None if lease is None else parse_seconds(lease, name="lease"),
                wait_seconds=seconds,
            )
            if found or time.monotonic() >= deadline:
                break
        _show_messages(session, found, receipts=not ack)
        if not found:
            session.say(_why_nothing(services, queue, group))
        elif ack:
            sys.stdout.flush()
            services.queues.ack(queue, [each.receipt for each in found], group=group)
            session.say(f"{counted(len(found), 'message')} acknowledged.")
        else:
            left = (found[0].lease_until_us - time.time() * 1e6) / 1e6
            option = "" if group == "default" else f" --group {group}"
            session.say(
                f"Held for {format_seconds(round(left))}. Done? headwater queue ack {queue} {found[0].receipt}{option}"
            )


@COMMANDS.command("ack")
def ack(session: Session, queue: Queue, receipts: Receipts, group: Group = "default") -> None:
    """Acknowledge messages: the group never gets them again."""
    with session.services(write=True) as services:
        services.queues.ack(queue, receipts, group=group)
    session.say(f"{counted(len(receipts), 'message')} acknowledged.")


@COMMANDS.command("nack")
def nack(
    session: Session,
    queue: Queue,
    receipts: Receipts,
    group: Group = "default",
    delay: Annotated[
        str | None, typer.Option("--delay", help="Deliver again after so long.", metavar="DURATION")
    ] = None,
    reason: Reason = "",
) -> None:
    """Return messages after a failure, to be delivered again; after its last attempt one is a dead letter."""
    seconds = None if delay is None else parse_seconds(delay, name="delay")
    with session.services(write=True) as services:
        services.queues.nack(queue, receipts, group=group, delay=seconds, reason=reason)
    session.say(f"{counted(len(receipts), 'message')} returned.")


@COMMANDS.command("reject")
def reject(session: Session, queue: Queue, receipts: Receipts, group: Group = "default", reason: Reason = "") -> None:
    """Make messages dead letters now."""
    with session.services(write=True) as services:
        services.queues.reject(queue, receipts, group=group, reason=reason)
    session.say(f"{counted(len(receipts), 'message')} rejected; see `headwater dlq show {queue}`.")


@COMMANDS.command("release")
def release(session: Session, queue: Queue, receipts: Receipts, group: Group = "default") -> None:
    """Return messages unprocessed: the delivery does not count."""
    with session.services(write=True) as services:
        services.queues.release(queue, receipts, group=group)
    session.say(f"{counted(len(receipts), 'message')} returned.")


@COMMANDS.command("peek")
def peek(
    session: Session,
    queue: Queue,
    n: Annotated[int, typer.Option("-n", help="How many messages.", min=1, metavar="N")] = 10,
    group: Group = "default",
) -> None:
    """Show the next messages of a group without taking them."""
    with session.services() as services:
        found = services.queues.peek(queue, n=n, group=group)
        _show_messages(session, found, receipts=False)
        if not found:
            session.say(_why_nothing(services, queue, group))


# -- groups -----------------------------------------------------------------------------------------------------------


@COMMANDS.command("pause")
def pause(session: Session, queue: Queue, group: Group = "default") -> None:
    """Deliver nothing to a group until it is resumed."""
    with session.services(write=True) as services:
        services.queues.pause(queue, group=group)
    session.say(f"Group {group!r} of queue {queue!r} is paused.")


@COMMANDS.command("resume")
def resume(session: Session, queue: Queue, group: Group = "default") -> None:
    """Deliver to a paused group again."""
    with session.services(write=True) as services:
        services.queues.resume(queue, group=group)
    session.say(f"Group {group!r} of queue {queue!r} goes on.")


@COMMANDS.command("replay")
def replay(
    session: Session,
    queue: Queue,
    start: Annotated[
        str, typer.Option("--from", help="earliest, latest, @TIME (UTC) or offsets such as 0:5.", metavar="WHERE")
    ] = "earliest",
    group: Group = "default",
    yes: Yes = False,
) -> None:
    """Deliver to a group all messages from a place on again, also those that it has acknowledged."""
    with session.services(write=True) as services:
        services.queues.stats(queue, group=group)
        session.confirm(f"Group {group!r} of queue {queue!r} gets messages again, from {start} on.", yes=yes)
        services.queues.replay(queue, start, group=group)
        waiting = services.queues.stats(queue, group=group).waiting
    session.say(f"{counted(waiting, 'message')} wait for group {group!r}.")


@COMMANDS.command("redrive")
def redrive(session: Session, queue: Queue, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Put the open dead letters of a queue again, each once, for the group that failed; `headwater dlq redrive` can choose."""
    with session.services(write=not dry_run) as services:
        tried = services.queues.redrive(queue, dry_run=True)
        if dry_run or not tried.total:
            session.show(tried, [f"{counted(tried.total, 'dead letter')} would be put again."])
            return
        session.confirm(f"{counted(tried.total, 'dead letter')} are put again.", yes=yes)
        done = services.queues.redrive(queue)
        while done.running:
            done = services.dead_letters.redrive_progress(queue, wait_seconds=1.0) or done
    session.show(done, [f"{counted(done.outcome.changed, 'dead letter')} put again."])


# -- exchanges --------------------------------------------------------------------------------------------------------


@COMMANDS.command("bind")
def bind(
    session: Session,
    exchange: Annotated[str, typer.Argument(help="Name of the exchange.", metavar="EXCHANGE")],
    queue: Queue,
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", help="Routing keys: * is one word, # any number.", metavar="orders.*.eu"),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", help="A header that must match.", metavar="NAME=VALUE")
    ] = None,
    any_header: Annotated[bool, typer.Option("--any", help="One of the headers is enough.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the binding.")] = False,
) -> None:
    """Send the messages of an exchange that match to a queue, which is created if there is none."""
    with session.services(create=not remove, write=True) as services:
        if remove:
            services.queues.unbind(exchange, queue)
        else:
            headers = pairs_of("--header", header or ()) or None
            services.queues.bind(
                exchange, queue, pattern=pattern, headers=headers, match="any" if any_header else "all"
            )
    session.say(f"Queue {queue!r} is {'no longer ' if remove else ''}bound to exchange {exchange!r}.")


# -- inside -----------------------------------------------------------------------------------------------------------

_TITLES = ("GROUP…", ">WAITING", ">IN FLIGHT", ">SCHEDULED", ">OLDEST", ">REDELIVERED", ">CONSUMERS", "STATE")


def _counts(group: QueueGroup) -> list[str]:
    found = group.stats
    oldest = "-" if found.oldest_seconds is None else format_seconds(round(found.oldest_seconds))
    numbers = (found.depth, found.in_flight, found.scheduled)
    return [
        group.name,
        *(f"{number:,}" for number in numbers),
        oldest,
        f"{found.redelivered:,}",
        f"{found.consumers:,}",
        "paused" if found.paused else "open",
    ]


def _letters(status: QueueStatus) -> str:
    return f"{status.dead_letters:,}" if status.dead_letters else "-"


# Any: the value of a setting.
def _shown(value: Any, name: str = "") -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return format_seconds(value) if isinstance(value, float) or name in ("lease", "ttl", "deduplicate") else str(value)


def _given_bodies(bodies: list[str] | None) -> Iterator[list[str]]:
    if bodies:
        yield bodies
        return
    if is_terminal(sys.stdin):
        raise typer.BadParameter("Give a message as JSON, or pipe one for each line into the command.")
    lines: list[str] = []
    for line in sys.stdin:
        if line.strip():
            lines.append(line.rstrip("\n"))
        if len(lines) == LINES_MAX:
            yield lines
            lines = []
    if lines:
        yield lines


# Any: JSON.
def _body(text: str, plain: bool) -> Any:
    if plain:
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise ArgumentInvalid(name="body", value=text, expected="JSON, or --text for plain text") from None


def _put(services: Services, queue: str, messages: list[NewMessage]) -> list[str]:
    """Put messages; wait while the queue is full and its setting is `block`."""
    from headwater.queues import QueueFull

    while True:
        try:
            return services.queues.put_many(queue, messages)
        except QueueFull as full:
            if services.queues.settings(queue).settings.overflow != "block" or len(messages) > full.length_max:
                raise
        time.sleep(FULL_SECONDS)


def _show_messages(session: Session, found: list[TakenMessage], *, receipts: bool) -> None:
    rows = [
        [*([each.receipt] if receipts else []), str(each.attempt), each.key or "-", cell(each.body)] for each in found
    ]
    titles = columns(*(["RECEIPT"] if receipts else []), ">ATTEMPT", "KEY…", "BODY…")
    session.show_all(found, titles, rows)


def _why_nothing(services: Services, queue: str, group: str) -> str:
    """Why there is no message to take, in words."""
    names = [each.name for each in services.queues.groups(queue)]
    if group not in names:
        return f"Queue {queue!r} has no group {group!r} yet; the first take creates it."
    found = services.queues.stats(queue, group=group)
    if found.paused:
        return f"Group {group!r} is paused: `headwater queue resume {queue}`."
    parts = [
        f"{number:,} {what}"
        for number, what in (
            (found.in_flight, "held by workers"),
            (found.scheduled, "scheduled"),
            (found.blocked, "behind one of their key"),
        )
        if number
    ]
    return f"No message can be taken from {queue!r}: {', '.join(parts)}." if parts else f"Queue {queue!r} is empty."
