"""`headwater group`: who reads what, how far behind, and from where to go on."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.arguments import POSITION_HELP, DryRun, Group, Yes
from headwater.cli.command import command, noun
from headwater.cli.session import Record, Session
from headwater.cli.terminal.streams import is_terminal
from headwater.cli.terminal.tables import Column
from headwater.cli.terminal.text import counted
from headwater.units import format_seconds

if TYPE_CHECKING:
    from headwater.log import GroupInfo, Lag

WATCH_SECONDS = 1.0


def register(app: typer.Typer) -> None:
    group = noun(app, "group", "Consumer groups: members, lag, and where they go on.")
    command(group, "list", "ls")(list_groups)
    command(group, "describe", "info")(describe)
    command(group, "lag")(lag)
    command(group, "seek")(seek)
    command(group, "delete", "rm")(delete)


def list_groups(session: Session) -> None:
    """List the groups, with their members and how far behind they are."""
    with session.services() as services:
        found = [services.groups.describe(one.group) for one in services.groups.list_groups()]
    columns = [
        Column(title="GROUP", cut=True),
        Column(title="TOPICS", cut=True),
        Column(title="MEMBERS", right=True),
        Column(title="LAG ROWS", right=True),
        Column(title="LAG TIME", right=True),
    ]
    records = [_summary(one) for one in found]
    rows = [
        [one["group"], ", ".join(one["topics"]) or "-", str(one["members"]), f"{one['rows']:,}", _age(one["seconds"])]
        for one in records
    ]
    session.show_all(records, columns, rows)
    if not found:
        session.say(
            "There are no groups yet. One begins with its first reader: `headwater consume TOPIC --group NAME`."
        )


def describe(session: Session, group: Group) -> None:
    """Show one group: its members and its partitions."""
    from headwater.services.json_form import to_json

    with session.services() as services:
        found = services.groups.describe(group)
    columns = [
        Column(title="MEMBER", cut=True),
        Column(title="PROCESS", right=True),
        Column(title="HOST", cut=True),
        Column(title="ALIVE"),
        Column(title="READS", cut=True),
    ]
    members = [
        [one.id, str(one.pid), one.host, "yes" if one.alive else "no", _assigned(one.assignment)]
        for one in found.members
    ]
    lines = [
        session.paint(found.group, "bold"),
        f"  generation  {found.generation}",
        f"  lag         {counted(found.rows, 'row')}",
        "",
        *(session.table(columns, members) or ["No members: no consumer reads for this group now."]),
        "",
        *session.table(*_lag_table(found.partitions)),
    ]
    session.show(to_json(found), lines)


def lag(
    session: Session,
    group: Annotated[str | None, typer.Argument(help="Only this group.", metavar="GROUP")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again every second; Ctrl-C ends it.")] = False,
) -> None:
    """Show how far groups are behind, in rows and in time."""
    from headwater.services.json_form import to_json

    with session.services() as services:
        while True:
            names = [group] if group is not None else [one.group for one in services.groups.list_groups()]
            found = [one for name in names for one in services.groups.lag(name)]
            if watch and session.output == "table" and is_terminal(sys.stdout):
                session.write("\x1b[H\x1b[2J" + time.strftime("%H:%M:%S"))
            session.show_all(to_json(found), *_lag_table(found))
            if not watch:
                break
            sys.stdout.flush()
            time.sleep(WATCH_SECONDS)
    if not found:
        session.say("Nothing has been read for a group yet.")


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
    """Move a group that has no live members.

    Shows where it is, where it goes, and how many rows are read again.
    """
    from headwater.log.remote.wire import offsets_to_text
    from headwater.services.groups import effect_of
    from headwater.services.json_form import to_json

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
    columns = [
        Column(title="TOPIC", cut=True),
        Column(title="PARTITION", right=True),
        Column(title="CURRENT", right=True),
        Column(title=""),
        Column(title="NEW", right=True),
        Column(title="ROWS REPLAYED", right=True),
    ]
    rows = [[one.topic, str(one.partition), _offset(one.current), "→", str(one.new), f"{one.rows:,}"] for one in steps]
    session.show_all([{**to_json(one), "moved": not dry_run} for one in steps], columns, rows)
    session.say(f"Group {group!r} {effect_of(steps)}." + (" Nothing was changed." if dry_run else ""))


def delete(session: Session, group: Group, yes: Yes = False, dry_run: DryRun = False) -> None:
    """Delete a group that has no live members.

    Its members and how far it has come are forgotten. No rows are deleted.
    """
    with session.services(write=not dry_run) as services:
        found = services.groups.describe(group)
        if not dry_run:
            session.confirm(
                f"This forgets how far group {group!r} has come in {counted(len(found.partitions), 'partition')}.",
                yes=yes,
            )
            services.groups.delete(group)
    session.say(f"{'Would delete' if dry_run else 'Deleted'} group {group!r}.")
    if session.output != "table":
        session.show({**_summary(found), "deleted": not dry_run})


def _summary(found: GroupInfo) -> Record:
    topics = sorted({one.topic for one in found.partitions} | {name for one in found.members for name in one.topics})
    return {
        "group": found.group,
        "topics": topics,
        "members": sum(one.alive for one in found.members),
        "rows": found.rows,
        "seconds": max((one.seconds for one in found.partitions), default=0.0),
    }


# -- for people -------------------------------------------------------------------------------------------------------


def _lag_table(found: list[Lag]) -> tuple[list[Column], list[list[str]]]:
    columns = [
        Column(title="GROUP", cut=True),
        Column(title="TOPIC", cut=True),
        Column(title="PART", right=True),
        Column(title="COMMITTED", right=True),
        Column(title="END", right=True),
        Column(title="LAG ROWS", right=True),
        Column(title="LAG TIME", right=True),
        Column(title="MEMBER", cut=True),
    ]
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
    return columns, rows


def _offset(offset: int | None) -> str:
    return "none yet" if offset is None else str(offset)


def _age(seconds: float) -> str:
    return format_seconds(round(seconds, 1))


def _assigned(assignment: dict[str, list[int]]) -> str:
    return ", ".join(f"{topic}[{','.join(map(str, numbers))}]" for topic, numbers in assignment.items()) or "-"
