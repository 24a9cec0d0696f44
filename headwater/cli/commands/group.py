"""`headwater group`: consumer groups with their members, their lag, and a seek of their offsets."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.arguments import POSITION_HELP, DryRun, Group, Yes
from headwater.cli.declaration import Noun
from headwater.cli.session import Record, Session
from headwater.cli.terminal.tables import Column, columns, counted
from headwater.units import format_seconds

if TYPE_CHECKING:
    from headwater.log import GroupInfo, Lag

WATCH_SECONDS = 1.0


COMMANDS = Noun("group", "Consumer groups: members, lag, and where they go on.")


@COMMANDS.command("list", "ls")
def list_groups(session: Session) -> None:
    """List the groups, with their members and their lag."""
    with session.services() as services:
        records = [_summary(services.groups.describe(one.group)) for one in services.groups.list_groups()]
    rows = [
        [one["group"], ", ".join(one["topics"]) or "-", str(one["members"]), f"{one['rows']:,}", _age(one["seconds"])]
        for one in records
    ]
    session.show_all(records, columns("GROUP…", "TOPICS…", ">MEMBERS", ">LAG ROWS", ">LAG TIME"), rows)
    if not records:
        session.say(
            "There are no groups yet. One begins with its first reader: `headwater consume TOPIC --group NAME`."
        )


@COMMANDS.command("describe", "info")
def describe(session: Session, group: Group) -> None:
    """Show one group: its members and its partitions."""
    with session.services() as services:
        found = services.groups.describe(group)
    members = [
        [
            one.id,
            str(one.pid),
            one.host,
            "yes" if one.alive else "no",
            ", ".join(f"{topic}[{','.join(map(str, numbers))}]" for topic, numbers in one.assignment.items()) or "-",
        ]
        for one in found.members
    ]
    table = session.table(columns("MEMBER…", ">PROCESS", "HOST…", "ALIVE", "READS…"), members)
    lines = [
        session.paint(found.group, "bold"),
        f"  generation  {found.generation}",
        f"  lag         {counted(found.rows, 'row')}",
        "",
        *(table or ["No members: no consumer reads for this group now."]),
        "",
        *session.table(*_lag_table(found.partitions)),
    ]
    session.show(found, lines)


@COMMANDS.command("lag")
def lag(
    session: Session,
    group: Annotated[str | None, typer.Argument(help="Only this group.", metavar="GROUP")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again every second; Ctrl-C ends it.")] = False,
) -> None:
    """Show how far groups are behind, in rows and in time."""
    with session.services() as services:
        while True:
            names = [group] if group is not None else [one.group for one in services.groups.list_groups()]
            found = [one for name in names for one in services.groups.lag(name)]
            if watch:
                session.clear()
            session.show_all(found, *_lag_table(found))
            if not watch:
                break
            sys.stdout.flush()
            time.sleep(WATCH_SECONDS)
    if not found:
        session.say("No group has read anything yet.")


@COMMANDS.command("seek")
def seek(
    session: Session,
    group: Group,
    to: Annotated[str, typer.Option("--to", help=POSITION_HELP, metavar="PLACE")],
    topic: Annotated[
        str | None, typer.Argument(help="Only this topic; by default all that the group reads.", metavar="TOPIC")
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only this partition; may be repeated.", metavar="N")
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Move the committed offsets of a group that has no live members.

    Shows the current and the new offsets, and how many rows are read again.
    """
    from headwater.log.remote.wire import offsets_to_text
    from headwater.services.groups import effect_of

    with session.services(write=not dry_run) as services:
        service = services.groups
        topics = [topic] if topic is not None else sorted({one.topic for one in service.lag(group)})
        planned = {name: service.seek(group, name, to, partitions=partition or None, dry_run=True) for name in topics}
        steps = [step for found in planned.values() for step in found]
        if not dry_run:
            session.confirm(f"Group {group!r} {effect_of(steps)}.", yes=yes)
            # To the offsets that were shown, though rows may have come since.
            wanted = {
                name: offsets_to_text({one.partition: one.new for one in found}) for name, found in planned.items()
            }
            steps = [step for name, offsets in wanted.items() for step in service.seek(group, name, offsets)]
    titles = columns("TOPIC…", ">PARTITION", ">CURRENT", "", ">NEW", ">ROWS REPLAYED")
    rows = [[one.topic, str(one.partition), _offset(one.current), "→", str(one.new), f"{one.rows:,}"] for one in steps]
    session.show_all(steps, titles, rows, moved=not dry_run)
    session.say(f"Group {group!r} {effect_of(steps)}." + (" Nothing was changed." if dry_run else ""))


@COMMANDS.command("delete", "rm")
def delete(session: Session, group: Group, yes: Yes = False, dry_run: DryRun = False) -> None:
    """Delete a group that has no live members.

    Deletes its members and its committed offsets. No rows are deleted.
    """
    with session.services(write=not dry_run) as services:
        found = services.groups.describe(group)
        if not dry_run:
            partitions = counted(len(found.partitions), "partition")
            session.confirm(f"This deletes the offsets that group {group!r} has committed in {partitions}.", yes=yes)
            services.groups.delete(group)
    session.say(f"{'Would delete' if dry_run else 'Deleted'} group {group!r}.")
    session.show(_summary(found), deleted=not dry_run)


def _summary(found: GroupInfo) -> Record:
    topics = sorted({one.topic for one in found.partitions} | {name for one in found.members for name in one.topics})
    return {
        "group": found.group,
        "topics": topics,
        "members": sum(one.alive for one in found.members),
        "rows": found.rows,
        "seconds": max((one.seconds for one in found.partitions), default=0.0),
    }


def _lag_table(found: list[Lag]) -> tuple[list[Column], list[list[str]]]:
    titles = columns("GROUP…", "TOPIC…", ">PART", ">COMMITTED", ">END", ">LAG ROWS", ">LAG TIME", "MEMBER…")
    rows = [
        [
            one.group,
            one.topic,
            str(one.partition),
            _offset(one.committed),
            str(one.offset_next),
            f"{one.rows:,}",
            _age(one.seconds),
            one.member or "-",
        ]
        for one in found
    ]
    return titles, rows


def _offset(offset: int | None) -> str:
    return "none yet" if offset is None else str(offset)


def _age(seconds: float) -> str:
    return format_seconds(round(seconds, 1))
