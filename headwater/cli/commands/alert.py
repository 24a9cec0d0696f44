"""`headwater alert`: rules and their states, what fired when, and a test of the notifications."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.arguments import Yes
from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.cli.terminal.tables import columns, short_time
from headwater.units import parse_seconds

if TYPE_CHECKING:
    from headwater.alerts import Summary

Name = Annotated[str, typer.Argument(help="Name of the rule.", metavar="NAME")]


def _option(*names: str, text: str, metavar: str) -> Any:
    return typer.Option(*names, help=text, metavar=metavar, show_default=False)


COMMANDS = Noun("alert", "Alert rules: what must not happen for long, and who is notified.")


# -- rules ------------------------------------------------------------------------------------------------------------


@COMMANDS.command("list", "ls")
def list_rules(session: Session) -> None:
    """List the rules and their states, as recorded by the process that evaluates them."""
    with session.services() as services:
        answer = services.alerts.rules()
    rows = [
        [one.name, _state(one), "-" if one.rule is None else one.rule.kind, short_time(one.since_us), _message(one)]
        for one in answer.rules
    ]
    session.show_all(answer.rules, columns("RULE…", "STATE", "KIND", "SINCE", "MESSAGE…"), rows)
    if not answer.rules:
        session.say("There are no rules; `headwater alert set` adds one.")
    elif not answer.watched:
        session.warn("no process evaluates these rules now: `headwater serve` and `headwater run` do while they run.")


@COMMANDS.command("set")
def set_rule(
    session: Session,
    name: Name,
    kind: Annotated[
        str | None,
        _option(
            "--kind",
            text="lag, watermark_delay, dead_letters, query_down, view, capture_delay, capture_retention, queue_depth, queue_age, "
            "queue_redeliveries, queue_unattended, gateway_down, gateway_lost or gateway_rejected.",
            metavar="KIND",
        ),
    ] = None,
    group: Annotated[
        str | None, _option("--group", text="Consumer group or group of a queue, or a pattern.", metavar="GROUP")
    ] = None,
    topic: Annotated[str | None, _option("--topic", text="Topic, or a pattern.", metavar="TOPIC")] = None,
    query: Annotated[str | None, _option("--query", text="Query of an app, or a pattern.", metavar="QUERY")] = None,
    capture: Annotated[str | None, _option("--capture", text="Capture, or a pattern.", metavar="CAPTURE")] = None,
    queue: Annotated[str | None, _option("--queue", text="Queue, or a pattern.", metavar="QUEUE")] = None,
    gateway: Annotated[str | None, _option("--gateway", text="Gateway, or a pattern.", metavar="GATEWAY")] = None,
    sql: Annotated[str | None, _option("--sql", text="One SELECT over views and topics.", metavar="SQL")] = None,
    key: Annotated[list[str] | None, _option("--key", text="Key column of its rows.", metavar="COLUMN")] = None,
    threshold: Annotated[float | None, _option("--threshold", text="More than this is too much.", metavar="N")] = None,
    unit: Annotated[str | None, _option("--unit", text="Of lag: rows or seconds.", metavar="UNIT")] = None,
    for_time: Annotated[
        str | None, _option("--for", text="How long it must hold, such as 5 min.", metavar="TIME")
    ] = None,
    severity: Annotated[str | None, _option("--severity", text="info, warning or critical.", metavar="WORD")] = None,
    webhook: Annotated[
        list[str] | None, _option("--webhook", text="URL to notify; may be repeated.", metavar="URL")
    ] = None,
    email: Annotated[
        list[str] | None, _option("--email", text="Who gets mail; may be repeated.", metavar="ADDRESS")
    ] = None,
    browser: Annotated[
        bool | None, typer.Option("--browser/--no-browser", help="Whether the console notifies.")
    ] = None,
    note: Annotated[str | None, _option("--note", text="What to do when it fires.", metavar="TEXT")] = None,
) -> None:
    """Add a rule, or change what is given of the one that is there. A rule that cannot be evaluated is an error."""
    from headwater.alerts import Rule

    given = {
        "kind": kind, "group": group, "topic": topic, "query": query, "capture": capture, "queue": queue, "gateway": gateway, "sql": sql, "key": key, "threshold": threshold,
        "unit": unit, "severity": severity, "webhooks": webhook, "emails": email, "browser": browser, "note": note,
        "for_seconds": None if for_time is None else parse_seconds(for_time, name="--for"),
    }  # fmt: skip
    with session.services(write=True) as services:
        known = {one.name: one.rule for one in services.alerts.rules().rules}.get(name)
        # Another kind has other fields: then nothing of the old rule is kept.
        kept = {} if known is None or kind not in (None, known.kind) else known.as_dict()
        rule = Rule.from_dict({"kind": "", **kept, "name": name, **{k: v for k, v in given.items() if v is not None}})
        services.alerts.set(rule)
    session.say(
        f"Rule {name!r} is {'set' if known is None else 'changed'}. `headwater alert test {name}` sends a test."
    )
    session.show(rule)


@COMMANDS.command("remove", "rm")
def remove(session: Session, name: Name, yes: Yes = False) -> None:
    """Remove a rule; its history stays."""
    with session.services(write=True) as services:
        services.alerts.rule(name)  # one that is not there is an error before the question
        session.confirm(f"No notifications of {name!r} are sent any more.", yes=yes)
        services.alerts.remove(name)
    session.say(f"Removed rule {name!r}.")


@COMMANDS.command("pause")
def pause(session: Session, name: Name) -> None:
    """Do not evaluate a rule until `headwater alert resume`."""
    with session.services(write=True) as services:
        services.alerts.pause(name)
    session.say(f"Rule {name!r} is paused.")


@COMMANDS.command("resume")
def resume(session: Session, name: Name) -> None:
    """Evaluate a paused rule again."""
    with session.services(write=True) as services:
        services.alerts.resume(name)
    session.say(f"Rule {name!r} is evaluated again.")


@COMMANDS.command("snooze")
def snooze(
    session: Session,
    name: Name,
    time: Annotated[str, typer.Argument(help="How long, such as 2 hours; 0 ends a snooze.", metavar="TIME")],
) -> None:
    """Send no notifications of a rule for a while. What still fires after that is notified then."""
    from headwater.clock import SystemClock

    seconds = parse_seconds(time, name="TIME")
    until_us = SystemClock().now_us() + round(seconds * 1e6) if seconds else None
    with session.services(write=True) as services:
        services.alerts.snooze(name, until_us)
    when = "are sent again" if until_us is None else f"are not sent before {short_time(until_us)} UTC"
    session.say(f"Notifications of rule {name!r} {when}.")


# -- history and notifications ----------------------------------------------------------------------------------------


@COMMANDS.command("history")
def history(
    session: Session,
    name: Annotated[str | None, typer.Argument(help="Only this rule.", metavar="NAME")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="So many changes.", min=1, metavar="N")] = 50,
) -> None:
    """Show which rules fired and were resolved, newest first, with the notifications."""
    with session.services() as services:
        entries = services.alerts.history(name, limit=limit)
    rows = [
        [
            short_time(one.at_us),
            one.rule,
            one.state,
            one.message,
            ", ".join(f"{each.channel} {each.state}" for each in one.deliveries) or "-",
        ]
        for one in entries
    ]
    session.show_all(entries, columns("AT", "RULE…", "STATE", "MESSAGE…", "NOTIFICATIONS"), rows)
    if not entries:
        session.say("Nothing has fired yet.")


@COMMANDS.command("test")
def test(session: Session, name: Name) -> None:
    """Send a test notification to all receivers of a rule, and show how each delivery went."""
    with session.services(write=True) as services:
        deliveries = services.alerts.test(name)
    rows = [[one.channel, one.target, one.state, one.error or "-"] for one in deliveries]
    session.show_all(deliveries, columns("CHANNEL", "RECEIVER…", "STATE", "ERROR"), rows)
    if not deliveries:
        session.say(f"Rule {name!r} notifies only the console; add `--webhook` or `--email`.")
    if any(one.state != "sent" for one in deliveries):
        raise typer.Exit(1)


def _state(summary: Summary) -> str:
    return f"{summary.state} (snoozed)" if summary.is_snoozed else summary.state


def _message(summary: Summary) -> str:
    if summary.error is not None:
        return summary.error
    messages = [one.message for one in summary.subjects if one.state == summary.state and summary.state != "ok"]
    return "; ".join(messages) or "-"
