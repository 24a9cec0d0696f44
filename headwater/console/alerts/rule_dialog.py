"""The form of an alert rule. It evaluates the rule while it is edited: what it says now, and how often it would have fired."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from nicegui import ui

from headwater.alerts import Measurement, Rule
from headwater.alerts.rule import SEVERITIES, TIME_KINDS, UNITS
from headwater.console.alerts.badge import shared_alerts
from headwater.console.alerts.display import KINDS
from headwater.console.context import Visit, context
from headwater.console.history import Kind
from headwater.console.kit.chart import LineChart
from headwater.console.kit.controls import button, select
from headwater.console.kit.layout import block, html
from headwater.console.kit.live import attempt, notify, read
from headwater.console.kit.words import span
from headwater.errors import ArgumentInvalid, HeadwaterError
from headwater.units import format_seconds, parse_bytes, parse_seconds

#: The fields of each kind, besides those that all kinds have.
FIELDS = {
    "lag": ("group", "topic", "query", "threshold", "unit"),
    "watermark_delay": ("query", "threshold"),
    "dead_letters": ("topic", "threshold"),
    "query_down": ("query",),
    "view": ("sql", "key", "threshold"),
    "capture_delay": ("capture", "threshold"),
    "capture_retention": ("capture", "threshold"),
    "queue_depth": ("queue", "group", "threshold"),
    "queue_age": ("queue", "group", "threshold"),
    "queue_redeliveries": ("queue", "group", "threshold"),
    "queue_unattended": ("queue", "group"),
    "gateway_down": ("gateway",),
    "gateway_lost": ("gateway", "threshold"),
    "gateway_rejected": ("gateway", "threshold"),
}
#: The label of the limit of each kind, and an example.
LIMITS = {
    "lag": ("More than", "1000, or 5 min"),
    "watermark_delay": ("More than", "5 min"),
    "dead_letters": ("More than, in a minute", "0"),
    "view": ("More rows than", "0"),
    "capture_delay": ("More than", "5 min"),
    "capture_retention": ("More bytes than", "10 GiB"),
    "queue_depth": ("More messages than", "1000"),
    "queue_age": ("More than", "5 min"),
    "queue_redeliveries": ("More than, in a minute", "10"),
    "gateway_lost": ("More than, in a minute", "0"),
    "gateway_rejected": ("More than, in a minute", "10"),
}
MEASUREMENTS_SHOWN = 3
#: Subjects whose measurements are drawn: those with the largest values.
LINES_MAX = 3


@dataclass(frozen=True, kw_only=True)
class RulePreview:
    """The measurements of a rule now, and how often it would have fired lately; or why it cannot be saved."""

    measurements: Sequence[Measurement] = ()
    lines: dict[str, list[tuple[float, float]]] | None = None
    fired: int = 0
    problem: str = ""


class RuleDialog:
    """A dialog for a new rule, or for an existing one. `after` is called when the rule was saved."""

    # Any: the result of a coroutine; and values and elements of any type, below.
    def __init__(self, visit: Visit, after: Callable[[], Any]) -> None:
        self._visit, self._after = visit, after
        self._rule: Rule | None = None
        self._previews = 0
        self._inputs: dict[str, Any] = {}
        with ui.dialog().props('aria-label="Alert rule"') as self._dialog, block("card stack alert-form"):
            self._title = html("")
            with block("alert-fields"):
                self._input("name", "Name", "billing-is-slow")
                self._choice("kind", dict(KINDS), "Watch")
                self._input("queue", "Queue, or a pattern", "jobs, or *")
                self._input("gateway", "Gateway, or a pattern", "statsd-metrics, or *")
                self._input("group", "Group, or a pattern", "billing, or bill*")
                self._input("query", "Query, or a pattern", "totals, or tot*")
                self._input("topic", "Topic", "every topic")
                self._input("capture", "Capture, or a pattern", "shop, or *")
                self._area("sql", "SQL over views and topics", "SELECT … FROM …", rows=4).classes("code-input wide")
                self._input("key", "Columns that tell rows apart", "none: the rows are counted")
                self._input("threshold", "More than")
                self._choice("unit", list(UNITS), "Unit")
                self._input("for_seconds", "For at least", "at once, or 5 min")
                self._choice("severity", list(SEVERITIES), "Severity")
            with block("alert-fields"):
                self._area("webhooks", "Webhooks, one on a line", "https://…")
                self._area("emails", "E-mails, one on a line", "desk@example.com")
                self._area("note", "Note for the receivers", "What to do about it")
                self._inputs["browser"] = ui.switch("Notify browsers in which the console is open").classes("wide")
            with block("alert-preview").props('role="status" aria-label="What it would say now"'):
                self._state = html("")
                self._measurements = block("stack tight small")
                with block("") as self._chart_box:
                    label = "The last half hour, and the limit"
                    self._chart = LineChart(label=label, dark=visit.dark, height=130, filled=False)
                self._fired = ui.label("").classes("quiet small")
            with block("row-flex end"):
                button("Cancel", self._dialog.close, kind="ghost")
                self._save_button = button("Save rule", self._save, kind="primary")

    def _input(self, name: str, label: str, example: str = "") -> None:
        made = ui.input(label, placeholder=example, on_change=self._try).classes("field")
        self._inputs[name] = made.props("outlined dense debounce=300")

    def _choice(self, name: str, options: Any, label: str) -> None:
        self._inputs[name] = select(options, value=None, label=label, on_change=self._try, named=True)

    def _area(self, name: str, label: str, example: str, *, rows: int = 2) -> ui.textarea:
        made = ui.textarea(label, placeholder=example, on_change=self._try).classes("field")
        self._inputs[name] = made.props(f"outlined dense debounce=300 rows={rows}")
        return made

    async def open(self, rule: Rule | None = None) -> None:
        self._rule = rule
        title = "New rule" if rule is None else f"Rule {rule.name}"
        self._title.set_content(f"<h2>{escape(title)}</h2>")
        self._fill(rule)
        self._inputs["name"].set_enabled(rule is None)
        history, sees = context().history, self._visit.caller.sees
        self._inputs["group"].set_autocomplete(sorted({lag.group for lag in history.lags}))
        self._inputs["query"].set_autocomplete([status.name for status in history.statuses])
        names = [name for name in history.topics if not name.startswith("__") and sees(name)]
        self._inputs["topic"].set_autocomplete(names[:1_000])
        self._dialog.open()
        await self._try()

    def _fill(self, rule: Rule | None) -> None:
        values: dict[str, Any] = {"kind": "lag", "unit": "rows", "severity": "warning", "browser": True}
        if rule is not None:
            values = rule.as_dict()
            values["key"] = ", ".join(rule.key)
            values["webhooks"], values["emails"] = "\n".join(rule.webhooks), "\n".join(rule.emails)
            values["for_seconds"] = format_seconds(rule.for_seconds) if rule.for_seconds else ""
            is_time = rule.kind in TIME_KINDS or rule.unit == "seconds"
            values["threshold"] = format_seconds(rule.threshold) if is_time else f"{rule.threshold:g}"
        for name, element in self._inputs.items():
            value = values.get(name)
            element.set_value(value if value is not None else False if name == "browser" else "")

    # -- the preview --------------------------------------------------------------------------------------------------

    async def _try(self) -> None:
        """Evaluate the rule that the form describes."""
        if not self._dialog.value:
            return
        self._show_fields()
        self._previews += 1
        number = self._previews
        try:
            rule = self._described()
        except HeadwaterError as error:
            problem = str(error) if self._text("name") else "The rule has no name yet."
            self._show(RulePreview(problem=problem))
            return
        preview = await read(lambda: preview_of(self._visit, rule, form=f"{id(self)}"))
        if number == self._previews:  # else the user has changed the form meanwhile
            self._show(preview)

    def _show_fields(self) -> None:
        kind = self._inputs["kind"].value
        for name in ("group", "topic", "query", "capture", "queue", "gateway", "sql", "key", "threshold", "unit"):
            self._inputs[name].set_visibility(name in FIELDS[kind])
        threshold = self._inputs["threshold"]
        if kind == "view" and self._text("key"):
            threshold.set_visibility(False)
        label, example = LIMITS.get(kind, ("More than", ""))
        threshold.set_label(label)
        threshold.props["placeholder"] = example

    def _described(self) -> Rule:
        """The rule that the form describes; `ArgumentInvalid` or `NameInvalid` if it is not complete."""
        kind = self._inputs["kind"].value
        fields = FIELDS[kind]
        given: dict[str, Any] = {
            name: self._text(name) or None for name in fields if name not in ("threshold", "unit", "key")
        }
        if "unit" in fields:
            given["unit"] = self._inputs["unit"].value
        if "key" in fields:
            given["key"] = tuple(name.strip() for name in self._text("key").split(",") if name.strip())
        if "threshold" in fields and not given.get("key"):
            given["threshold"] = self._threshold(kind, given.get("unit"))
        held = self._text("for_seconds")
        before = self._rule
        return Rule(
            name=self._text("name"),
            kind=kind,
            for_seconds=parse_seconds(held, name="for at least") if held else 0.0,
            severity=self._inputs["severity"].value,
            webhooks=self._lines("webhooks"),
            emails=self._lines("emails"),
            browser=bool(self._inputs["browser"].value),
            note=self._inputs["note"].value or "",
            enabled=before is None or before.enabled,
            snoozed_until_us=None if before is None else before.snoozed_until_us,
            **given,
        )

    def _threshold(self, kind: str, unit: str | None) -> float:
        text = self._text("threshold") or "0"
        if kind in TIME_KINDS or unit == "seconds":
            return parse_seconds(text, name="more than")
        if kind == "capture_retention":
            return float(parse_bytes(text, name="more than"))
        try:
            return float(text.replace(",", "").replace("_", ""))
        except ValueError:
            raise ArgumentInvalid(name="more than", value=text, expected="a number, 0 or more") from None

    def _text(self, name: str) -> str:
        return (self._inputs[name].value or "").strip()

    def _lines(self, name: str) -> tuple[str, ...]:
        return tuple(line.strip() for line in (self._inputs[name].value or "").splitlines() if line.strip())

    def _show(self, preview: RulePreview) -> None:
        problem = preview.problem
        self._save_button.set_enabled(not problem)
        over = [measurement for measurement in preview.measurements if measurement.is_over]
        state, tone = ("firing" if not self._text("for_seconds") else "pending", "bad") if over else ("ok", "good")
        now = f'Now it would be: <span class="pill {tone}">{state}</span>'
        self._state.set_content('<span class="pill">not complete</span>' if problem else now)
        self._measurements.clear()
        with self._measurements:
            messages = [measurement.message for measurement in over or preview.measurements]
            for text in [problem] if problem else messages[:MEASUREMENTS_SHOWN]:
                ui.label(text).classes("wrap-anywhere")
            if len(messages) > MEASUREMENTS_SHOWN:
                ui.label(f"and {len(messages) - MEASUREMENTS_SHOWN:,} more").classes("quiet")
            if not messages and not problem:
                ui.label("Nothing fits it now; it is watched as soon as something does.").classes("quiet")
        self._chart_box.set_visibility(bool(preview.lines))
        self._fired.set_visibility(preview.lines is not None)
        if preview.lines:
            self._chart.set(preview.lines)
            seconds = max(points[-1][0] - points[0][0] for points in preview.lines.values())
            times = {0: "would not have fired", 1: "would have fired once"}
            text = times.get(preview.fired, f"would have fired {preview.fired} times")
            self._fired.set_text(f"In the last {span(seconds)} it {text}.")

    # -- saving -------------------------------------------------------------------------------------------------------

    async def _save(self) -> None:
        service, is_new = self._visit.services.alerts, self._rule is None

        def save() -> Rule:
            rule = self._described()
            if is_new and any(known.name == rule.name for known in service.rules().rules):
                raise ArgumentInvalid(name="name", value=rule.name, expected="a name that no rule has")
            service.set(rule)
            shared_alerts().forget()
            return rule

        rule = await attempt(save)
        if rule is not None:
            self._dialog.close()
            notify(f"Rule {rule.name} is saved.")
            await self._after()


def preview_of(visit: Visit, rule: Rule, *, form: str) -> RulePreview:
    """Evaluate a rule without saving it; the evaluation before it, of the same form, is stopped."""
    try:
        measurements = visit.services.alerts.preview(rule, form=form)
    except HeadwaterError as error:
        return RulePreview(problem=str(error))
    largest = sorted(measurements, key=lambda measurement: -measurement.value)[:LINES_MAX]
    subjects = [measurement.subject for measurement in largest]
    lines = {subject: points for subject in subjects if (points := _recent_points(rule, subject))}
    if not lines:
        return RulePreview(measurements=measurements)
    fired = sum(episodes(points, threshold=rule.threshold, for_seconds=rule.for_seconds) for points in lines.values())
    begin, end = min(points[0][0] for points in lines.values()), max(points[-1][0] for points in lines.values())
    lines["limit"] = [(begin, rule.threshold), (end, rule.threshold)]
    return RulePreview(measurements=measurements, lines=lines, fired=fired)


def episodes(points: Sequence[tuple[float, float]], *, threshold: float, for_seconds: float) -> int:
    """How often a rule would have begun to fire over measured points.

    >>> episodes([(0, 1), (2, 9), (4, 9), (6, 1), (8, 9)], threshold=5, for_seconds=0)
    2
    >>> episodes([(0, 1), (2, 9), (4, 9), (6, 1), (8, 9)], threshold=5, for_seconds=2)
    1
    """
    count, since, fires = 0, None, False
    for at, value in points:
        if value <= threshold:
            since, fires = None, False
            continue
        since = at if since is None else since
        if not fires and at - since >= for_seconds:
            count, fires = count + 1, True
    return count


def _recent_points(rule: Rule, subject: str) -> list[tuple[float, float]]:
    """The measurements of a subject in the last half hour; the history has them for some kinds of rules only."""
    kind: Kind = "query" if rule.query else "capture" if rule.capture else "queue" if rule.queue else "group"
    measure = {
        ("lag", "rows"): "lag",
        ("lag", "seconds"): "lag_seconds" if kind == "group" else "",
        ("watermark_delay", "rows"): "watermark_delay",
        ("capture_delay", "rows"): "delay",
        ("capture_retention", "rows"): "retained",
        ("queue_depth", "rows"): "depth",
        ("queue_age", "rows"): "oldest",
    }.get((rule.kind, rule.unit), "")
    points = context().history.series(kind, subject, measure) if measure else []
    return points if len(points) > 1 else []
