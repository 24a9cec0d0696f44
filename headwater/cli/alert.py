"""`headwater alert`: rules, how they stand, what fired when, and whether people would hear of it."""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.arguments import Yes
from headwater.cli.asking import confirm
from headwater.cli.commands import command, noun
from headwater.cli.session import Record, Session
from headwater.cli.tables import Column
from headwater.cli.wording import iso, shown
from headwater.errors import ArgumentInvalid
from headwater.units import parse_seconds

if TYPE_CHECKING:
    from headwater.alerts import Change, Delivery, Rule, Summary, Watcher
    from headwater.log import EmbeddedLog

Name = Annotated[str, typer.Argument(help="Name of the rule.", metavar="NAME")]


def _option(*names: str, text: str, metavar: str) -> Any:
    return typer.Option(*names, help=text, metavar=metavar, show_default=False)


def register(app: typer.Typer) -> None:
    alert = noun(app, "alert", "Alert rules: what must not happen for long, and who is told.")
    command(alert, "list", "ls")(list_rules)
    command(alert, "set")(set_rule)
    command(alert, "remove", "rm")(remove)
    command(alert, "pause")(pause)
    command(alert, "resume")(resume)
    command(alert, "snooze")(snooze)
    command(alert, "history")(history)
    command(alert, "test")(test)


# -- rules ------------------------------------------------------------------------------------------------------------


def list_rules(session: Session) -> None:
    """List the rules with how they stand, as the process that watches has written it down."""
    with _watcher(session) as watcher:
        found, is_watched = watcher.states(), watcher.is_watched()
    columns = [
        Column(title="RULE", cut=True),
        Column(title="STATE"),
        Column(title="KIND"),
        Column(title="SINCE"),
        Column(title="WHAT", cut=True),
    ]
    rows = [[one.name, _state(one), _kind(one), shown(one.since_us), _what(one)] for one in found]
    session.show_all([_summary(one) for one in found], columns, rows)
    if not found:
        session.say("There are no rules; `headwater alert set` adds one.")
    elif not is_watched:
        session.warn("nobody looks at these rules now: `headwater serve` and `headwater run` do while they run.")


def set_rule(
    session: Session,
    name: Name,
    kind: Annotated[
        str | None, _option("--kind", text="lag, watermark_delay, dead_letters, query_down or view.", metavar="KIND")
    ] = None,
    group: Annotated[str | None, _option("--group", text="Consumer group, or a pattern.", metavar="GROUP")] = None,
    topic: Annotated[str | None, _option("--topic", text="Topic, or a pattern.", metavar="TOPIC")] = None,
    query: Annotated[str | None, _option("--query", text="Query of an app, or a pattern.", metavar="QUERY")] = None,
    sql: Annotated[str | None, _option("--sql", text="One SELECT over views and topics.", metavar="SQL")] = None,
    key: Annotated[
        list[str] | None, _option("--key", text="Column by which its rows are told apart.", metavar="COLUMN")
    ] = None,
    threshold: Annotated[float | None, _option("--threshold", text="More than this is too much.", metavar="N")] = None,
    unit: Annotated[str | None, _option("--unit", text="Of lag: rows or seconds.", metavar="UNIT")] = None,
    for_time: Annotated[
        str | None, _option("--for", text="How long it must hold, such as 5 min.", metavar="TIME")
    ] = None,
    severity: Annotated[str | None, _option("--severity", text="info, warning or critical.", metavar="WORD")] = None,
    webhook: Annotated[
        list[str] | None, _option("--webhook", text="URL to tell; may be repeated.", metavar="URL")
    ] = None,
    email: Annotated[
        list[str] | None, _option("--email", text="Who gets mail; may be repeated.", metavar="ADDRESS")
    ] = None,
    browser: Annotated[
        bool | None, typer.Option("--browser/--no-browser", help="Whether the console notifies.")
    ] = None,
    note: Annotated[str | None, _option("--note", text="What to do when it fires.", metavar="TEXT")] = None,
) -> None:
    """Add a rule, or change what is given of the one that is there. A rule that could never be looked at is refused."""
    from headwater.alerts import Rule

    given = {
        "kind": kind, "group": group, "topic": topic, "query": query, "sql": sql, "key": key, "threshold": threshold,
        "unit": unit, "severity": severity, "webhooks": webhook, "emails": email, "browser": browser, "note": note,
        "for_seconds": None if for_time is None else parse_seconds(for_time, name="--for"),
    }  # fmt: skip
    with _watcher(session, write=True) as watcher:
        known = {rule.name: rule for rule in watcher.rules()}.get(name)
        # Another kind looks at other things: then nothing of the old rule is kept.
        kept = {} if known is None or kind not in (None, known.kind) else known.as_dict()
        rule = Rule.from_dict({"kind": "", **kept, "name": name, **{k: v for k, v in given.items() if v is not None}})
        watcher.put(rule)
        _audit(watcher, "alert set", name)
    session.say(
        f"Rule {name!r} is {'set' if known is None else 'changed'}. `headwater alert test {name}` tries who is told."
    )
    if session.output != "table":
        session.show(_rule(rule))


def remove(session: Session, name: Name, yes: Yes = False) -> None:
    """Take a rule away; its history stays."""
    with _watcher(session, write=True) as watcher:
        if name not in watcher.book.broken:
            watcher.state(name)  # refuses one that is not there before anybody is asked
        confirm(session, f"Nobody is told of {name!r} any more.", yes=yes)
        watcher.remove(name)
        _audit(watcher, "alert remove", name)
    session.say(f"Removed rule {name!r}.")


def pause(session: Session, name: Name) -> None:
    """Do not look at a rule until `headwater alert resume`."""
    with _watcher(session, write=True) as watcher:
        watcher.pause(name)
        _audit(watcher, "alert pause", name)
    session.say(f"Rule {name!r} is paused.")


def resume(session: Session, name: Name) -> None:
    """Look at a paused rule again."""
    with _watcher(session, write=True) as watcher:
        watcher.pause(name, paused=False)
        _audit(watcher, "alert resume", name)
    session.say(f"Rule {name!r} is looked at again.")


def snooze(
    session: Session,
    name: Name,
    time: Annotated[str, typer.Argument(help="How long, such as 2 hours; 0 ends a snooze.", metavar="TIME")],
) -> None:
    """Tell nobody of a rule for a while. What still fires then is told then."""
    seconds = parse_seconds(time, name="TIME")
    with _watcher(session, write=True) as watcher:
        until_us = watcher.book.log.clock.now_us() + round(seconds * 1e6) if seconds else None
        watcher.snooze(name, until_us=until_us)
        _audit(watcher, "alert snooze", name)
    told = "People are told again" if until_us is None else f"Nobody is told before {shown(until_us)} UTC"
    session.say(f"{told} of rule {name!r}.")


# -- what fired, and who would hear of it -----------------------------------------------------------------------------


def history(
    session: Session,
    name: Annotated[str | None, typer.Argument(help="Only this rule.", metavar="NAME")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="So many changes.", min=1, metavar="N")] = 50,
) -> None:
    """Show what fired and what was over, newest first, and who was told."""
    with _watcher(session) as watcher:
        found = watcher.history(rule=name, limit=limit)
        deliveries = watcher.book.outbox.of(change.id for change in found)
    columns = [
        Column(title="AT"),
        Column(title="RULE", cut=True),
        Column(title="STATE"),
        Column(title="WHAT", cut=True),
        Column(title="TOLD"),
    ]
    rows = [[shown(one.at_us), one.rule, one.state, one.message, _told(deliveries[one.id])] for one in found]
    session.show_all([_change(one, deliveries[one.id]) for one in found], columns, rows)
    if not found:
        session.say("Nothing has fired yet.")


def test(session: Session, name: Name) -> None:
    """Tell everybody whom a rule would tell that this is a test, and show how that went."""
    with _watcher(session, write=True) as watcher:
        found = watcher.test(name)
    columns = [
        Column(title="CHANNEL"),
        Column(title="RECEIVER", cut=True),
        Column(title="STATE"),
        Column(title="ERROR"),
    ]
    rows = [[one.channel, one.target, one.state, one.error or "-"] for one in found]
    session.show_all([_delivery(one) for one in found], columns, rows)
    if not found:
        session.say(f"Rule {name!r} tells nobody but the console; add `--webhook` or `--email`.")
    if any(one.state != "sent" for one in found):
        raise typer.Exit(1)


# -- the log, and words -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _watcher(session: Session, *, write: bool = False) -> Iterator[Watcher]:
    from headwater.alerts import Watcher

    if session.config.log.startswith(("http://", "https://")):
        expected = "the folder of the log; over HTTP, rules are under /api/v1/alerts/rules"
        raise ArgumentInvalid(name="--log", value=session.config.log, expected=expected)
    with session.log(write=write) as log:
        watcher = Watcher(log)
        watcher.book.refresh()
        yield watcher


def _audit(watcher: Watcher, action: str, target: str) -> None:
    with contextlib.suppress(ImportError):  # without the packages of the server there is no audit
        from headwater.server.audit import Audit

        log: EmbeddedLog = watcher.book.log
        user = pwd.getpwuid(os.getuid()).pw_name
        Audit(log).record(caller=user, address="command line", action=action, target=target, status=200)


def _rule(rule: Rule) -> Record:
    record = rule.as_dict()
    record["snoozed_until"] = iso(record.pop("snoozed_until_us"))
    return record


def _summary(summary: Summary) -> Record:
    subjects = [asdict(one) for one in summary.subjects]
    for one in subjects:
        one["since"] = iso(one.pop("since_us") or None)
    return {
        "name": summary.name,
        "state": summary.state,
        "is_snoozed": summary.is_snoozed,
        "since": iso(summary.since_us),
        "error": summary.error,
        "subjects": subjects,
        "rule": None if summary.rule is None else _rule(summary.rule),
    }


def _change(change: Change, deliveries: list[Delivery]) -> Record:
    record = {"at": iso(change.at_us), **asdict(change), "deliveries": [_delivery(one) for one in deliveries]}
    return {name: value for name, value in record.items() if name not in ("at_us", "offset", "firing_id")}


def _delivery(delivery: Delivery) -> Record:
    names = ("channel", "target", "state", "attempts", "error")
    return {name: getattr(delivery, name) for name in names}


def _state(summary: Summary) -> str:
    return f"{summary.state} (snoozed)" if summary.is_snoozed else summary.state


def _kind(summary: Summary) -> str:
    return "-" if summary.rule is None else summary.rule.kind


def _what(summary: Summary) -> str:
    if summary.error is not None:
        return summary.error
    messages = [one.message for one in summary.subjects if one.state == summary.state and summary.state != "ok"]
    return "; ".join(messages) or "-"


def _told(deliveries: list[Delivery]) -> str:
    return ", ".join(f"{one.channel} {one.state}" for one in deliveries) or "-"
