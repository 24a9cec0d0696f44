"""The form of an alert rule. Whatever is written in it is tried at once: what the rule would say now, and lately."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from nicegui import ui

from headwater.alerts import Rule
from headwater.alerts.rule import SEVERITIES, UNITS
from headwater.console.alerts.badge import alerts
from headwater.console.alerts.preview import RulePreview, preview_of
from headwater.console.alerts.words import KINDS
from headwater.console.context import context
from headwater.console.kit.chart import LineChart
from headwater.console.kit.layout import block, button, select
from headwater.console.kit.live import attempt, read, tell
from headwater.console.kit.words import span
from headwater.console.visit import Visit
from headwater.errors import ArgumentInvalid, HeadwaterError
from headwater.units import format_seconds, parse_seconds

#: The fields that each kind has, besides those that all have.
FIELDS = {
    "lag": ("group", "topic", "query", "threshold", "unit"),
    "watermark_delay": ("query", "threshold"),
    "dead_letters": ("topic", "threshold"),
    "query_down": ("query",),
    "view": ("sql", "key", "threshold"),
}
#: What stands above the limit of each kind, and what may be written there.
LIMITS = {
    "lag": ("More than", "1000, or 5 min"),
    "watermark_delay": ("More than", "5 min"),
    "dead_letters": ("More than, in a minute", "0"),
    "view": ("More rows than", "0"),
}
READINGS_TOLD = 3


class RuleDialog:
    """A dialog for a new rule, or for one that is there. `after` is told when it has been saved."""

    def __init__(self, visit: Visit, after: Callable[[], Any]) -> None:
        self._visit, self._after = visit, after
        self._rule: Rule | None = None
        self._asked = 0
        with ui.dialog().props('aria-label="Alert rule"') as self._dialog, block("card stack alert-form"):
            self._title = ui.html("", sanitize=False)
            self._build_what()
            self._build_who()
            self._build_preview()
            with block("row-flex end"):
                button("Cancel", self._dialog.close, kind="ghost")
                self._save = button("Save rule", self._store, kind="primary")

    # -- the fields ---------------------------------------------------------------------------------------------------

    def _build_what(self) -> None:
        self._inputs: dict[str, Any] = {}
        with block("alert-fields"):
            self._input("name", "Name", "billing-is-slow")
            self._choice("kind", dict(KINDS), "Watch")
            self._input("group", "Group, or a pattern", "billing, or bill*")
            self._input("query", "Query, or a pattern", "totals, or tot*")
            self._input("topic", "Topic", "every topic")
            self._inputs["sql"] = self._area("SQL over views and topics", "SELECT … FROM …", rows=4)
            self._inputs["sql"].classes("code-input wide")
            self._input("key", "Columns that tell rows apart", "none: the rows are counted")
            self._input("threshold", "More than")
            self._choice("unit", list(UNITS), "Unit")
            self._input("for_seconds", "For at least", "at once, or 5 min")
            self._choice("severity", list(SEVERITIES), "Severity")

    def _build_who(self) -> None:
        with block("alert-fields"):
            self._inputs["webhooks"] = self._area("Webhooks, one on a line", "https://…")
            self._inputs["emails"] = self._area("E-mails, one on a line", "desk@example.com")
            self._inputs["note"] = self._area("Note for the receivers", "What to do about it")
            self._inputs["browser"] = ui.switch("Notify browsers in which the console is open").classes("wide")

    def _build_preview(self) -> None:
        with block("alert-preview").props('role="status" aria-label="What it would say now"'):
            self._now = ui.html("", sanitize=False)
            self._found = block("stack tight small")
            self._chart_box = block("")
            with self._chart_box:
                self._chart = LineChart(
                    label="The last half hour, and the limit", dark=self._visit.dark, height=130, filled=False
                )
            self._lately = ui.label("").classes("quiet small")

    def _input(self, name: str, label: str, example: str = "") -> None:
        made = ui.input(label, placeholder=example, on_change=self._changed).classes("field")
        self._inputs[name] = made.props("outlined dense debounce=300")

    def _choice(self, name: str, options: Any, label: str) -> None:
        self._inputs[name] = select(options, value=None, label=label, on_change=self._changed, named=True)

    def _area(self, label: str, example: str, *, rows: int = 2) -> ui.textarea:
        made = ui.textarea(label, placeholder=example, on_change=self._changed).classes("field")
        return made.props(f"outlined dense debounce=300 rows={rows}")

    # -- opening ------------------------------------------------------------------------------------------------------

    async def open(self, rule: Rule | None = None) -> None:
        self._rule = rule
        title = "New rule" if rule is None else f"Rule {rule.name}"
        self._title.set_content(f"<h2>{escape(title)}</h2>")
        self._fill(rule)
        self._inputs["name"].set_enabled(rule is None)
        self._suggest()
        self._dialog.open()
        await self._changed()

    def _fill(self, rule: Rule | None) -> None:
        given: dict[str, Any] = {"kind": "lag", "unit": "rows", "severity": "warning", "browser": True}
        if rule is not None:
            given = rule.as_dict()
            given["key"] = ", ".join(rule.key)
            given["webhooks"], given["emails"] = "\n".join(rule.webhooks), "\n".join(rule.emails)
            given["for_seconds"] = format_seconds(rule.for_seconds) if rule.for_seconds else ""
            is_time = rule.kind == "watermark_delay" or rule.unit == "seconds"
            given["threshold"] = format_seconds(rule.threshold) if is_time else f"{rule.threshold:g}"
        for name, element in self._inputs.items():
            found = given.get(name)
            element.set_value(found if found is not None else False if name == "browser" else "")

    def _suggest(self) -> None:
        history, sees = context().history, self._visit.caller.sees
        self._inputs["group"].set_autocomplete(sorted({lag.group for lag in history.lags}))
        self._inputs["query"].set_autocomplete([one.name for one in history.statuses])
        names = [name for name in history.topics if not name.startswith("__") and sees(name)]
        self._inputs["topic"].set_autocomplete(names[:1_000])

    # -- trying -------------------------------------------------------------------------------------------------------

    async def _changed(self) -> None:
        if not self._dialog.value:
            return
        self._show_fields()
        self._asked += 1
        asked = self._asked
        try:
            rule = self._written()
        except HeadwaterError as error:
            self._show(RulePreview(trouble=str(error) if self._text("name") else "The rule has no name yet."))
            return
        found = await read(lambda: preview_of(self._visit, rule, form=f"{id(self)}"))
        if asked == self._asked:  # else the user has changed the form meanwhile
            self._show(found)

    def _show_fields(self) -> None:
        kind = self._inputs["kind"].value
        shown = FIELDS[kind]
        for name in ("group", "topic", "query", "sql", "key", "threshold", "unit"):
            self._inputs[name].set_visibility(name in shown)
        if kind == "view" and self._text("key"):
            self._inputs["threshold"].set_visibility(False)
        label, example = LIMITS.get(kind, ("More than", ""))
        self._inputs["threshold"].set_label(label)
        self._inputs["threshold"].props["placeholder"] = example

    def _written(self) -> Rule:
        """The rule as the form has it; `ArgumentInvalid` or `NameInvalid` where it is none yet."""
        kind = self._inputs["kind"].value
        shown = FIELDS[kind]
        given: dict[str, Any] = {
            name: self._text(name) or None for name in shown if name not in ("threshold", "unit", "key")
        }
        if "unit" in shown:
            given["unit"] = self._inputs["unit"].value
        if "key" in shown:
            given["key"] = tuple(one.strip() for one in self._text("key").split(",") if one.strip())
        if "threshold" in shown and not given.get("key"):
            given["threshold"] = self._threshold(kind, given.get("unit"))
        held = self._text("for_seconds")
        before = self._rule
        return Rule(
            name=self._text("name"),
            kind=kind,
            for_seconds=parse_seconds(held, name="for at least") if held else 0.0,
            severity=self._inputs["severity"].value,
            webhooks=_lines(self._inputs["webhooks"].value),
            emails=_lines(self._inputs["emails"].value),
            browser=bool(self._inputs["browser"].value),
            note=self._inputs["note"].value or "",
            enabled=before is None or before.enabled,
            snoozed_until_us=None if before is None else before.snoozed_until_us,
            **given,
        )

    def _threshold(self, kind: str, unit: str | None) -> float:
        text = self._text("threshold") or "0"
        if kind == "watermark_delay" or unit == "seconds":
            return parse_seconds(text, name="more than")
        try:
            return float(text.replace(",", "").replace("_", ""))
        except ValueError:
            raise ArgumentInvalid(name="more than", value=text, expected="a number, 0 or more") from None

    def _text(self, name: str) -> str:
        return (self._inputs[name].value or "").strip()

    def _show(self, found: RulePreview) -> None:
        self._save.set_enabled(not found.trouble)
        over = [one for one in found.readings if one.is_over]
        if found.trouble:
            head = '<span class="pill">not complete</span>'
        elif over:
            head = f'Now it would be: <span class="pill bad">{"firing" if not self._held() else "pending"}</span>'
        else:
            head = 'Now it would be: <span class="pill good">ok</span>'
        self._now.set_content(head)
        self._found.clear()
        with self._found:
            told = [one.message for one in over or found.readings]
            for text in [found.trouble] if found.trouble else told[:READINGS_TOLD]:
                ui.label(text).classes("wrap-anywhere")
            if len(told) > READINGS_TOLD:
                ui.label(f"and {len(told) - READINGS_TOLD:,} more").classes("quiet")
            if not told and not found.trouble:
                ui.label("Nothing fits it now; it is watched as soon as something does.").classes("quiet")
        self._chart_box.set_visibility(bool(found.lines))
        if found.lines:
            self._chart.set(found.lines)
        self._lately.set_visibility(found.lines is not None)
        if found.lines:
            times = {0: "would not have fired", 1: "would have fired once"}
            long = max(points[-1][0] - points[0][0] for points in found.lines.values())
            said = times.get(found.fired, f"would have fired {found.fired} times")
            self._lately.set_text(f"In the last {span(long)} it {said}.")

    def _held(self) -> bool:
        return bool(self._text("for_seconds"))

    # -- saving -------------------------------------------------------------------------------------------------------

    async def _store(self) -> None:
        service = self._visit.services.alerts
        is_new = self._rule is None

        def store() -> Rule:
            rule = self._written()
            if is_new and any(one.name == rule.name for one in service.rules().rules):
                raise ArgumentInvalid(name="name", value=rule.name, expected="a name that no rule has")
            service.set(rule)
            alerts().forget()
            return rule

        rule = await attempt(store)
        if rule is not None:
            self._dialog.close()
            tell(f"Rule {rule.name} is saved.")
            result = self._after()
            if hasattr(result, "__await__"):
                await result


def _lines(text: str | None) -> tuple[str, ...]:
    return tuple(one.strip() for one in (text or "").splitlines() if one.strip())
