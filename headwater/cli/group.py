"""`headwater group`: who reads what, how far behind, and from where to go on."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli import positions
from headwater.cli.arguments import DryRun, Group, Yes
from headwater.cli.asking import confirm
from headwater.cli.commands import command, noun
from headwater.cli.positions import parse_position, resolve
from headwater.cli.session import Record, Session
from headwater.cli.tables import Column
from headwater.cli.terminal import is_terminal
from headwater.cli.wording import counted, iso
from headwater.units import format_seconds

if TYPE_CHECKING:
    from headwater.log import EmbeddedLog, GroupInfo, Lag, SeekStep

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
    with session.log() as log:
        found = [log.groups.describe(name) for name in log.groups.names()]
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
    with session.log() as log:
        found = log.groups.describe(group)
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
        *(session.table(columns, members) or ["No members: nobody reads for this group now."]),
        "",
        *session.table(*_lag_table(found.partitions)),
    ]
    session.show(_described(found), lines)


def lag(
    session: Session,
    group: Annotated[str | None, typer.Argument(help="Only this group.", metavar="GROUP")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it anew every second; Ctrl-C ends it.")] = False,
) -> None:
    """Show how far groups are behind, in rows and in time."""
    with session.log() as log:
        while True:
            found = log.groups.lag(group)
            if watch and session.output == "table" and is_terminal(sys.stdout):
                session.write("\x1b[H\x1b[2J" + time.strftime("%H:%M:%S"))
            session.show_all([lag_record(one) for one in found], *_lag_table(found))
            if not watch:
                break
            sys.stdout.flush()
            time.sleep(WATCH_SECONDS)
    if not found:
        session.say("Nothing has been read for a group yet.")


def seek(
    session: Session,
    group: Group,
    to: Annotated[str, typer.Option("--to", help=positions.HELP, metavar="PLACE")],
    topic: Annotated[
        str | None, typer.Argument(help="Only this topic; by default all that the group reads.", metavar="TOPIC")
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only this partition; may be repeated.", metavar="N")
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Move a group that nobody reads for.

    Shows where it is, where it goes, and how many rows are read again.
    """
    position = parse_position(to, name="--to")
    with session.log(write=not dry_run) as log:
        topics = [topic] if topic is not None else _topics_of(log, group)
        wanted = {name: resolve(log, name, position, partition or _partitions(log, name)) for name in topics}
        steps = [step for name, at in wanted.items() for step in log.groups.seek(group, name, at, dry_run=True)]
        if not dry_run:
            confirm(session, f"Group {group!r} {_moved(steps)}.", yes=yes)
            steps = [step for name, at in wanted.items() for step in log.groups.seek(group, name, at)]
    columns = [
        Column(title="TOPIC", cut=True),
        Column(title="PARTITION", right=True),
        Column(title="CURRENT", right=True),
        Column(title=""),
        Column(title="NEW", right=True),
        Column(title="ROWS REPLAYED", right=True),
    ]
    rows = [[one.topic, str(one.partition), _offset(one.current), "→", str(one.new), f"{one.rows:,}"] for one in steps]
    session.show_all([_step_record(one, moved=not dry_run) for one in steps], columns, rows)
    session.say(f"Group {group!r} {_moved(steps)}." + (" Nothing was changed." if dry_run else ""))


def delete(session: Session, group: Group, yes: Yes = False, dry_run: DryRun = False) -> None:
    """Forget a group that nobody reads for.

    Its members and how far it has come are forgotten. No rows are deleted.
    """
    with session.log(write=not dry_run) as log:
        found = log.groups.describe(group)
        if not dry_run:
            confirm(
                session,
                f"This forgets how far group {group!r} has come in {counted(len(found.partitions), 'partition')}.",
                yes=yes,
            )
            log.groups.delete(group)
    session.say(f"{'Would delete' if dry_run else 'Deleted'} group {group!r}.")
    if session.output != "table":
        session.show({**_summary(found), "deleted": not dry_run})


# -- for programs: these names are a contract -------------------------------------------------------------------------


def _summary(found: GroupInfo) -> Record:
    topics = sorted({one.topic for one in found.partitions} | {name for one in found.members for name in one.topics})
    return {
        "group": found.group,
        "topics": topics,
        "members": sum(one.alive for one in found.members),
        "rows": found.rows,
        "seconds": max((one.seconds for one in found.partitions), default=0.0),
    }


def _described(found: GroupInfo) -> Record:
    members = [
        {
            "member": one.id,
            "pid": one.pid,
            "host": one.host,
            "static": one.static,
            "alive": one.alive,
            "topics": list(one.topics),
            "assignment": {topic: list(numbers) for topic, numbers in one.assignment.items()},
            "joined_at": iso(one.joined_us),
            "heartbeat_at": iso(one.heartbeat_us),
        }
        for one in found.members
    ]
    return {
        "group": found.group,
        "generation": found.generation,
        "rows": found.rows,
        "members": members,
        "partitions": [lag_record(one) for one in found.partitions],
    }


def lag_record(one: Lag) -> Record:
    return {
        "group": one.group,
        "topic": one.topic,
        "partition": one.partition,
        "committed": one.committed,
        "offset_start": one.offset_start,
        "offset_next": one.offset_next,
        "rows": one.rows,
        "seconds": one.seconds,
        "member": one.member,
        "expires_in_seconds": one.expires_in_seconds,
    }


def _step_record(one: SeekStep, *, moved: bool) -> Record:
    return {
        "group": one.group,
        "topic": one.topic,
        "partition": one.partition,
        "current": one.current,
        "new": one.new,
        "rows": one.rows,
        "moved": moved,
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


def _moved(steps: list[SeekStep]) -> str:
    again, over = sum(max(0, one.rows) for one in steps), sum(max(0, -one.rows) for one in steps)
    parts = [f"reads {counted(again, 'row')} again"] if again else []
    parts += [f"passes {counted(over, 'row')} over"] if over else []
    return " and ".join(parts) or "stays where it is"


def _topics_of(log: EmbeddedLog, group: str) -> list[str]:
    return sorted({one.topic for one in log.groups.lag(group)})


def _partitions(log: EmbeddedLog, topic: str) -> list[int]:
    return list(range(log.topic(topic).partitions))
