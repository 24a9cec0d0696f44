"""One rule or stored search: edited with its mistakes shown, tried on past events, and then put live."""

from __future__ import annotations

from nicegui import ui

from headwater.console.context import Visit, context
from headwater.console.kit.controls import button, plain_button, select, text_box
from headwater.console.kit.dialog import Question
from headwater.console.kit.editor import Editor
from headwater.console.kit.layout import block, card, code, heading, note, subtitle
from headwater.console.kit.live import attempt, notify, read
from headwater.console.kit.table import Column, Row, Table, drawn
from headwater.console.kit.values import NULL
from headwater.console.kit.words import count, duration, moment
from headwater.console.matches.list_page import highlighted, match_text
from headwater.console.matches.model import MatchRow, points_of
from headwater.console.matches.timeline import small
from headwater.console.pages import path_to, screen
from headwater.console.rules.list_page import NOUNS, visible_tables
from headwater.console.rules.rule_tables import RuleTable, StoredRule, rule_path, stored_in, write
from headwater.console.rules.trial import Trial, TrialInput, check, problem_of, spot, trial_input, try_text
from headwater.console.sql.names import as_name
from headwater.errors import HeadwaterError, NotFound
from headwater.schema.notation import format_type

ROWS = {1_000: "the last 1,000 rows", 10_000: "the last 10,000 rows", 100_000: "the last 100,000 rows"}
SHOWN = 50
EXAMPLE = (
    "MEASURES FIRST(a.{on}) AS began_at, LAST(b.{on}) AS ended_at\nPATTERN (a b+)\nWITHIN INTERVAL '10' MINUTE\n"
    "DEFINE a AS true, b AS true"
)
COLUMNS = {
    "rules": (
        Column(name="Ended"),
        Column(name="Key"),
        Column(name="Events", width="190px"),
        Column(name="Measures", clip=True),
    ),
    "searches": (
        Column(name="Score", align="right"),
        Column(name="Document", clip=True),
        Column(name="Where it fits"),
    ),
}


@screen("/rules/{topic}/edit", under="/rules")
async def rule(visit: Visit, topic: str, id: str = "") -> None:
    visit.caller.require("read", topic)

    def load() -> tuple[RuleTable, dict[str, StoredRule], list[str]]:
        log = context().log
        table = next((table for table in visible_tables(visit) if table.topic == topic), None)
        if table is None:
            raise NotFound(kind="topic", name=topic)
        events = [table.events] if table.events is not None else [name for name in log.topics() if name != topic]
        return table, stored_in(log, table), [name for name in events if visit.caller.may("read", name)][:500]

    table, rules, topics = await read(load)
    RulePage(visit, table, rules.get(id), topics, id)


class RulePage:
    """The editor, the trial, and the button that puts the rule live."""

    def __init__(
        self, visit: Visit, table: RuleTable, known: StoredRule | None, topics: list[str], rule_id: str
    ) -> None:
        self._visit, self._table, self._known = visit, table, known
        self._topic = topics[0] if topics else None
        self._trial: Trial | None = None
        self._tried_text = ""
        self._columns_of = ""
        noun = NOUNS[table.kind]
        under = f"A new {noun} for the topic `{table.topic}`."
        if known is not None:
            under = f"Version {known.version} of a {noun} in the topic `{table.topic}`."
        with heading(known.id if known else f"New {noun}", under=under, why="rules"):
            path = path_to("rules", table.topic)
            button("All rules", lambda: ui.navigate.to(path), kind="ghost", icon="arrow_back")
            self._save_button = button("Put it live", self._save, icon="bolt", kind="primary")
            self._save_button.set_visibility(visit.caller.may("write", table.topic))
        if not topics:
            note("There is no topic to look at, so that the text can be neither checked nor tried.", "warn")
        with block("with-aside"):
            with block("stack wide"):
                self._build_editor(known.text if known else "", rule_id, topics)
                self._trial_place = block("stack wide")
            self._aside = block("stack wide")
        ui.timer(0.05, self._check, once=True)

    def _build_editor(self, text: str, rule_id: str, topics: list[str]) -> None:
        with card():
            with block("row-flex low"):
                self._id = text_box("Name of the rule", value=rule_id, placeholder="large-payments")
                self._id.style("width: 280px").props("readonly" if self._known else "")
                self._enabled = ui.switch("On", value=self._known.enabled if self._known else True)
                self._enabled.set_visibility(self._table.can_pause)
            self._editor = Editor(
                label="Text of the rule",
                dark=self._visit.dark,
                value=text,
                lines=8,
                language="SQL" if self._table.kind == "rules" else None,
                on_change=self._check,
                on_run=self._try,
            )
            self._status = ui.label("").classes("small").props('role="status"')
            with block("row-flex"):
                button("Try it", self._try, icon="science")
                ui.label("on").classes("quiet small")
                self._rows = select(ROWS, value=10_000, label="How many past rows").style("min-width: 190px")
                ui.label("of").classes("quiet small")
                self._of = select(topics, value=self._topic, label="Topic to try it on", on_change=self._choose_topic)
                self._of.style("min-width: 160px")
                self._of.set_enabled(len(topics) > 1)

    async def _choose_topic(self) -> None:
        self._topic = str(self._of.value)
        await self._check()

    # -- checking -----------------------------------------------------------------------------------------------------

    def _target(self) -> TrialInput:
        return trial_input(context().log, self._table, str(self._topic))

    async def _check(self) -> None:
        text = self._editor.value
        if self._topic is None:
            return
        try:
            target = await read(self._target)
        except HeadwaterError as error:
            self._show_status(problem_of(error), "bad")
            return
        self._show_columns(target)
        if not text.strip():
            self._show_status("Write what to look for; mistakes show as you write.", "")
            return
        problem: HeadwaterError | None = None
        try:
            await read(lambda: check(target, text))
        except HeadwaterError as error:
            problem = error
        if text != self._editor.value:  # the user has changed the text meanwhile
            return
        if problem is None:
            self._show_status("Understood. Try it on past events before it goes live.", "good")
            self._editor.underline(None)
        else:
            self._show_problem(text, problem)

    def _show_problem(self, text: str, error: HeadwaterError) -> None:
        self._show_status(problem_of(error), "bad")
        self._editor.underline(spot(text, error))

    def _show_status(self, text: str, tone: str) -> None:
        self._save_button.set_enabled(tone == "good")
        self._status.set_text(text)
        self._status.classes(remove="tone-text-good tone-text-bad quiet", add=f"tone-text-{tone}" if tone else "quiet")

    def _show_columns(self, target: TrialInput) -> None:
        if self._columns_of == target.topic:
            return
        self._columns_of = target.topic
        self._aside.clear()
        with self._aside:
            with card(f"Columns of {target.topic}"), block("names"):
                for column in target.schema:
                    self._column_button(column.name, format_type(column.type))
            with card("How it is looked for"):
                for sentence in _explanation(target):
                    ui.markdown(sentence).classes("small")
            if not self._editor.value.strip() and target.kind == "rules":
                example = EXAMPLE.format(on=as_name(target.time or "at"))
                button("Begin with an example", lambda: self._editor.set(example), icon="auto_fix_high")

    def _column_button(self, name: str, type_name: str) -> None:
        text = as_name(name) if self._table.kind == "rules" else f"{name}:"
        with plain_button(name, lambda: self._editor.insert(text)).classes("column"):
            ui.label(type_name).classes("kind")

    # -- trying -------------------------------------------------------------------------------------------------------

    async def _try(self) -> None:
        text, rows = self._editor.value, int(self._rows.value)
        if self._topic is None or not text.strip():
            return
        self._trial_place.clear()
        with self._trial_place, card():
            waiting = ui.label("Looking through past rows; the first time takes some seconds.")
            waiting.classes("quiet").props('role="status"')
        try:
            self._visit.caller.require("read", self._topic)
            trial = await read(lambda: try_text(context().log, self._target(), text, rows=rows))
        except HeadwaterError as error:
            self._trial_place.clear()
            self._show_problem(text, error)
            return
        self._trial, self._tried_text = trial, text
        self._trial_place.clear()
        with self._trial_place:
            show_trial(trial, self._table.kind)

    # -- saving -------------------------------------------------------------------------------------------------------

    async def _save(self) -> None:
        rule_id, text = (self._id.value or "").strip(), self._editor.value
        if not rule_id:
            notify("Give the rule a name first.", good=False)
            return
        with Question(f"Put {rule_id} live?", yes="Put it live") as question:
            if self._known is not None and self._known.text != text:
                subtitle("Now", level=3)
                code(self._known.text)
                subtitle("From the next batch on", level=3)
            code(text)
            ui.label(self._effect(text))
        if not await question.answered():
            return
        version = await attempt(lambda: self._write(rule_id, text))
        if version is not None:
            notify(f"{rule_id} is live from the next batch on (version {version}).")
            ui.navigate.to(rule_path(self._table.topic, rule_id))

    def _effect(self, text: str) -> str:
        trial = self._trial
        effect = "It begins afresh; all other rules keep what they have begun." if self._table.kind == "rules" else ""
        if self._table.can_pause and not self._enabled.value:
            effect = "It is written down as paused, and finds nothing until it is resumed."
        if trial is None or self._tried_text != text:
            return f"It was not tried on past events. {effect}"
        return f"Among {count(trial.rows)} past rows it found {count(trial.count)} matches. {effect}"

    def _write(self, rule_id: str, text: str) -> int:
        table, caller = self._table, self._visit.caller
        caller.require("write", table.topic)
        enabled = bool(self._enabled.value)
        version = write(context().log, table, rule_id, text, enabled=enabled, known=self._known)
        context().audit_change(caller, "rule.write", f"{table.topic}/{rule_id}")
        return version


def show_trial(trial: Trial, kind: str) -> None:
    """The matches of a trial, in a sentence and as rows."""
    with card(flush=True, classes="whole-cells" if kind == "rules" else ""):
        with block("card-head"):
            subtitle(f"{count(trial.count)} {'match' if trial.count == 1 else 'matches'}")
            ui.label(
                f"in {count(trial.rows)} rows from {moment(trial.first_us)} to {moment(trial.last_us)} UTC, "
                f"in {duration(trial.seconds)}"
            ).classes("quiet small")
        table = Table(COLUMNS[kind], label="Matches of the trial", none="It would have found nothing.")
        cells = [_cells(trial, match, kind) for match in trial.matches[:SHOWN]]
        table.set_rows([Row(row, key=place) for place, row in enumerate(cells)])
        if trial.count > SHOWN:
            with block("pager"):
                ui.label(f"The newest {SHOWN} are shown.")


def _cells(trial: Trial, match: MatchRow, kind: str) -> list[object]:
    if kind == "searches":
        marked = highlighted(match.values.get("highlights", NULL))
        return [match.values["score"], match_text(match), drawn(marked)]
    points = points_of(trial.events.get(match.place, []), trial.column)
    timeline = drawn(small(points)) if points else "–"
    return [moment(match.last_us), ", ".join(match.key.values()), timeline, match_text(match)]


def _explanation(target: TrialInput) -> list[str]:
    if target.kind == "searches":
        return [
            "Words and phrases, fields as `title:storm`, ranges as `price:<10`, AND, OR, NOT and brackets; or JSON in Elasticsearch's form."
        ]
    by = ", ".join(target.by) or "no key"
    return [
        f"For each {by}, in the order of {target.time or 'no time'}.",
        "MEASURES says what a match tells, PATTERN in which order rows come, DEFINE what each is, WITHIN how long it may last.",
    ]
