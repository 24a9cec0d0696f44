"""`headwater log`: verify, repair, compact, back up and restore the files of a log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.arguments import DryRun, Yes, known_topics
from headwater.cli.declaration import Noun
from headwater.cli.session import Record, Session
from headwater.cli.terminal.progress import progress_bar
from headwater.cli.terminal.tables import Column, columns, counted
from headwater.units import format_bytes

if TYPE_CHECKING:
    from headwater.log.embedded.backup import Backup
    from headwater.log.embedded.repair import Report

OneTopic = Annotated[
    str | None,
    typer.Argument(help="Only this topic; by default all.", metavar="TOPIC", autocompletion=known_topics),
]


COMMANDS = Noun("log", "Verify, repair, compact, back up and restore the log's files.")


@COMMANDS.command("verify")
def verify(session: Session, topic: OneTopic = None) -> None:
    """Read and check every frame.

    Changes nothing. Ends with 1 if a file is damaged.
    """
    from headwater.log.embedded import repair as repairs

    with session.log(folder=True) as log, progress_bar(session, "verify") as progress:
        report = repairs.verify(log, topic, progress=progress)
    session.show(_record(report), _lines(session, report))
    session.say(_looked_at(report))
    if not report.ok:
        raise typer.Exit(1)


@COMMANDS.command("repair")
def repair(session: Session, topic: OneTopic = None, yes: Yes = False, dry_run: DryRun = False) -> None:
    """Repair damaged files.

    Damaged bytes are moved to the folder `quarantine`, never deleted. Ends with 1 if a file must be restored from a copy.
    """
    from headwater.log.embedded import repair as repairs

    with session.log(write=not dry_run, folder=True) as log:
        with progress_bar(session, "repair" if yes else "verify") as progress:
            report = repairs.repair(log, topic, dry_run=dry_run or not yes, progress=progress)
        if report.findings and not dry_run and not yes:
            for text in _lines(session, report):
                session.say(text)
            session.confirm(f"This repairs {counted(len(report.findings), 'finding')}.", yes=yes)
            with progress_bar(session, "repair") as progress:
                report = repairs.repair(log, topic, progress=progress)
    session.show({**_record(report), "repaired": not dry_run}, _lines(session, report))
    left = [one for one in report.findings if not one.action]
    if left:
        session.say(f"{counted(len(left), 'finding')} cannot be repaired: restore the files from a copy.")
        raise typer.Exit(1)
    session.say(_looked_at(report) if report.ok else "Would be repaired." if dry_run else "Repaired.")


@COMMANDS.command("compact")
def compact(session: Session, topic: OneTopic = None, dry_run: DryRun = False) -> None:
    """Run the maintenance of a topic now instead of after appends.

    It applies retention, joins small frames, and keeps the last row per key of compacted topics.
    """
    from headwater.log.embedded import local_log

    with session.log(write=not dry_run, folder=True) as log:
        names = log.topics(internal=True) if topic is None else [log.topic(topic).name]
        records = []
        for name in names:
            before = log.describe(name)
            done = None if dry_run else local_log(log).maintain(name, seal=True)
            after = log.describe(name)
            records.append(
                {
                    "topic": name,
                    "bytes_before": before.bytes,
                    "bytes_after": after.bytes,
                    "segments_before": sum(one.segments for one in before.partitions),
                    "segments_after": sum(one.segments for one in after.partitions),
                    "rows_removed": 0 if done is None else done.rows_compacted,
                    "segments_expired": 0 if done is None else done.segments_expired,
                    "done": not dry_run,
                }
            )
    session.show_all(records, *_compacted(records, dry_run=dry_run))
    if dry_run:
        session.say("Nothing was changed. Which rows are deleted depends on each topic's retention and on `--compact`.")


@COMMANDS.command("backup")
def backup(
    session: Session,
    target: Annotated[Path, typer.Argument(help="A folder that does not exist yet.", metavar="TARGET")],
    since: Annotated[
        Path | None,
        typer.Option(
            help="An earlier backup: files that have not changed become hard links to its files.", metavar="BACKUP"
        ),
    ] = None,
) -> None:
    """Copy the log while it is written.

    All partitions are copied as they were at one moment: each transaction whole or not at all. Every frame is checked. The
    backup has its name only when it is complete.
    """
    from headwater.log.embedded import backup as backups

    with session.log(write=True, folder=True) as log, progress_bar(session, "backup") as progress:
        made = backups.back_up(log, target, since=since, progress=progress)
    session.show(_backup_record(made, target), [])
    session.say(f"{_contents(made)} copied to {target}.")
    if made.bytes_shared:
        session.say(f"{format_bytes(made.bytes_shared)} of them are shared with {since}.")
    for name in made.left_out:
        session.say(f"Topic {name!r} was deleted meanwhile, and is not in the backup.")


@COMMANDS.command("restore")
def restore(
    session: Session,
    source: Annotated[Path, typer.Argument(help="A backup.", metavar="BACKUP")],
    target: Annotated[Path, typer.Argument(help="A folder that is new or empty.", metavar="TARGET")],
    dry_run: DryRun = False,
) -> None:
    """Make a log of a backup.

    Every file is compared with its checksum. With `--dry-run` nothing else is done: this checks a backup.
    """
    from headwater.log.embedded import backup as backups

    with progress_bar(session, "verify" if dry_run else "restore") as progress:
        if dry_run:
            made = backups.check_backup(source, progress=progress)
        else:
            made = backups.restore(source, target, progress=progress)
    session.show({**_backup_record(made, target), "done": not dry_run}, [])
    session.say(f"The backup is whole: {_contents(made)}." if dry_run else f"{_contents(made)} restored to {target}.")


# -- for programs and for people --------------------------------------------------------------------------------------


def _record(report: Report) -> Record:
    counts = ("topics", "partitions", "segments", "frames", "rows", "bytes")
    facts = ("kind", "path", "topic", "partition", "position", "offset", "offset_next", "why", "action")
    findings = [
        {name: None if (fact := getattr(one, name)) in ("", -1) else fact for name in facts} for one in report.findings
    ]
    return {"ok": report.ok, **{name: getattr(report, name) for name in counts}, "findings": findings}


def _backup_record(made: Backup, target: Path) -> Record:
    return {
        "target": str(target),
        "at_us": made.at_us,
        "topics": len(made.ends),
        "files": len(made.files),
        "bytes": made.bytes,
        "bytes_shared": made.bytes_shared,
        "left_out": made.left_out,
    }


def _contents(made: Backup) -> str:
    return f"{counted(len(made.ends), 'topic')} in {counted(len(made.files), 'file')}, {format_bytes(made.bytes)}"


def _lines(session: Session, report: Report) -> list[str]:
    lines = []
    for one in report.findings:
        place = f"{one.topic}[{one.partition}]@{one.offset}  " if one.topic and one.offset >= 0 else ""
        byte = f" at byte {one.position}" if one.position >= 0 else ""
        lines += [f"{session.paint(one.kind, 'red')}  {place}{one.why}", f"  {one.path}{byte}"]
        lines += [f"  → {one.action}"] if one.action else []
    return lines


def _looked_at(report: Report) -> str:
    verdict = "All is well" if report.ok else counted(len(report.findings), "finding")
    return (
        f"{verdict}: {counted(report.rows, 'row')} in {counted(report.frames, 'frame')}, {counted(report.segments, 'segment')} "
        f"and {counted(report.topics, 'topic')}, {format_bytes(report.bytes)} read."
    )


def _compacted(records: list[Record], *, dry_run: bool) -> tuple[list[Column], list[list[str]]]:
    if dry_run:
        return columns("TOPIC…", ">SIZE", ">SEGMENTS"), [
            [one["topic"], format_bytes(one["bytes_before"]), str(one["segments_before"])] for one in records
        ]
    return columns("TOPIC…", ">BEFORE", ">AFTER", ">SEGMENTS", ">ROWS REMOVED"), [
        [
            one["topic"],
            format_bytes(one["bytes_before"]),
            format_bytes(one["bytes_after"]),
            f"{one['segments_before']} → {one['segments_after']}",
            f"{one['rows_removed']:,}",
        ]
        for one in records
    ]
