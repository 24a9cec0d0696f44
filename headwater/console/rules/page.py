"""One rule or stored search: written with its mistakes shown, tried on past events, and only then put live."""

from __future__ import annotations

from html import escape
from urllib.parse import quote

from nicegui import ui

from headwater.console.context import context
from headwater.console.kit.dialog import Question
from headwater.console.kit.editor import Editor
from headwater.console.kit.layout import block, button, card, heading, note, select, text_box
from headwater.console.kit.live import read, tell
from headwater.console.kit.names import as_name
from headwater.console.kit.table import Column, Row, Table, drawn
from headwater.console.kit.words import count, moment
from headwater.console.pages import screen
from headwater.console.rules.list_page import NOUNS, shared_kinds, shown_seconds
from headwater.console.rules.match_timeline import small
from headwater.console.rules.matches import points_of
from headwater.console.rules.matches_page import highlighted, told_of
from headwater.console.rules.rule_tables import RuleTable, StoredRule, stored_in, tables_of, write
from headwater.console.rules.trial import Trial, TrialInput, bench_of, check, spot, told, tried
from headwater.console.visit import Visit
from headwater.errors import HeadwaterError, NotFound
from headwater.schema.notation import format_type

ROWS = {1_000: "the last 1,000 rows", 10_000: "the last 10,000 rows", 100_000: "the last 100,000 rows"}
SHOWN = 50
EXAMPLES = {
    "rules": "MEASURES FIRST(a.{on}) AS began_at, LAST(b.{on}) AS ended_at\nPATTERN (a b+)\nWITHIN INTERVAL '10' MINUTE\nDEFINE a AS true, b AS true",
    "searches": "",
}


@screen("/rules/{topic}/edit", under="/rules")
async def rule(visit: Visit, topic: str, id: str = "") -> None:
    visit.caller.require("read", topic)
    table, stored, benches = await read(lambda: _look(visit, topic))
    RulePage(visit, table, stored.get(id), benches, id)


def _look(visit: Visit, topic: str) -> tuple[RuleTable, dict[str, StoredRule], list[str]]:
    log = context().log
    table = next((one for one in tables_of(log, shared_kinds()) if one.topic == topic), None)
    if table is None:
        raise NotFound(kind="topic", name=topic)
    known = [table.events] if table.events is not None else [name for name in log.topics() if name != topic]
    return table, stored_in(log, table), [name for name in known if visit.caller.may("read", name)][:500]


class RulePage:
    """The editor, the trial, and the way to put it live."""

    def __init__(
        self, visit: Visit, table: RuleTable, known: StoredRule | None, topics: list[str], rule_id: str
    ) -> None:
        self._visit, self._table, self._known = visit, table, known
        self._topic = topics[0] if topics else None
        self._trial: Trial | None = None
        self._tried_text = ""
        self._is_good = False
        may_write = visit.caller.may("write", table.topic)
        under = (
            f"Version {known.version} of a {NOUNS[table.kind]} in the topic `{table.topic}`."
            if known
            else f"A new {NOUNS[table.kind]} for the topic `{table.topic}`."
        )
        with heading(known.id if known else f"New {NOUNS[table.kind]}", under=under, why="rules"):
            back = f"/console/rules/{quote(table.topic, safe='')}"
            button("All rules", lambda: ui.navigate.to(back), kind="ghost", icon="arrow_back")
            self._save_button = button("Put it live", self._ask, icon="bolt", kind="primary")
            self._save_button.set_visibility(may_write)
        if not topics:
            note("There is no topic to look at, so that the text can be neither checked nor tried.", "warn")
        with block("with-aside"):
            with block("stack wide"):
                self._editor_card(known.text if known else "", rule_id, topics)
                self._trial_place = block("stack wide")
            self._aside = block("stack wide")
        ui.timer(0.05, self._check, once=True)

    def _editor_card(self, text: str, rule_id: str, topics: list[str]) -> None:
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
            self._told = ui.label("").classes("small").props('role="status"')
            with block("row-flex"):
                button("Try it", self._try, icon="science")
                ui.label("on").classes("quiet small")
                self._rows = select(ROWS, value=10_000, label="How many past rows").style("min-width: 190px")
                ui.label("of").classes("quiet small")
                self._of = select(topics, value=self._topic, label="Topic to try it on", on_change=self._chosen)
                self._of.style("min-width: 160px")
                self._of.set_enabled(len(topics) > 1)

    async def _chosen(self) -> None:
        self._topic = str(self._of.value)
        await self._check()

    # -- checking -----------------------------------------------------------------------------------------------------

    def _trial_input(self) -> TrialInput:
        return bench_of(context().log, self._table, str(self._topic))

    async def _check(self) -> None:
        text = self._editor.value
        if self._topic is None:
            return
        try:
            bench = await read(self._trial_input)
        except HeadwaterError as error:
            self._tell(told(error), "bad")
            return
        self._show_columns(bench)
        if not text.strip():
            self._tell("Write what to look for; mistakes show as you write.", "")
            return
        try:
            await read(lambda: check(bench, text))
        except HeadwaterError as error:
            if text == self._editor.value:  # else the user has changed the text meanwhile
                self._tell(told(error), "bad")
                self._editor.underline(spot(text, error))
            return
        if text == self._editor.value:
            self._tell("Understood. Try it on past events before it goes live.", "good")
            self._editor.underline(None)

    def _tell(self, text: str, tone: str) -> None:
        self._is_good = tone == "good"
        self._save_button.set_enabled(self._is_good)
        self._told.set_text(text)
        self._told.classes(remove="tone-text-good tone-text-bad quiet", add=f"tone-text-{tone}" if tone else "quiet")

    def _show_columns(self, bench: TrialInput) -> None:
        if getattr(self, "_columns_of", None) == bench.topic:
            return
        self._columns_of = bench.topic
        self._aside.clear()
        with self._aside:
            with card(f"Columns of {bench.topic}"), block("names"):
                for one in bench.schema:
                    name = as_name(one.name) if bench.kind == "rules" else f"{one.name}:"
                    made = ui.element("button").props('type="button"').classes("column")
                    made.on("click", lambda name=name: self._editor.insert(name))
                    with made:
                        ui.label(one.name)
                        ui.label(format_type(one.type)).classes("kind")
            with card("How it is looked for"):
                _explained(bench)
            if not self._editor.value.strip() and EXAMPLES[bench.kind]:
                example = EXAMPLES[bench.kind].format(on=as_name(bench.time or "at"))
                button("Begin with an example", lambda: self._editor.set(example), icon="auto_fix_high")

    # -- trying -------------------------------------------------------------------------------------------------------

    async def _try(self) -> None:
        text, rows = self._editor.value, int(self._rows.value)
        if self._topic is None or not text.strip():
            return
        self._trial_place.clear()
        with self._trial_place, card():
            ui.label("Looking through past rows; the first time takes some seconds.").classes("quiet").props(
                'role="status"'
            )
        try:
            self._visit.caller.require("read", self._topic)
            trial = await read(lambda: tried(context().log, self._trial_input(), text, rows=rows))
        except HeadwaterError as error:
            self._trial_place.clear()
            self._tell(told(error), "bad")
            self._editor.underline(spot(text, error))
            return
        self._trial, self._tried_text = trial, text
        self._trial_place.clear()
        with self._trial_place:
            show_trial(trial, self._table.kind)

    # -- putting it live ----------------------------------------------------------------------------------------------

    async def _ask(self) -> None:
        rule_id, text = (self._id.value or "").strip(), self._editor.value
        if not rule_id:
            tell("Give the rule a name first.", good=False)
            return
        question = Question(f"Put {rule_id} live?", yes="Put it live")
        with question:
            if self._known is not None and self._known.text != text:
                ui.html("<h3>Now</h3>", sanitize=False)
                ui.html(f'<pre class="code">{escape(self._known.text)}</pre>', sanitize=False)
                ui.html("<h3>From the next batch on</h3>", sanitize=False)
            ui.html(f'<pre class="code">{escape(text)}</pre>', sanitize=False)
            ui.label(self._preview(text))
        if await question.answered():
            await self._save(rule_id, text)

    def _preview(self, text: str) -> str:
        trial = self._trial
        effect = "It begins afresh; all other rules keep what they have begun." if self._table.kind == "rules" else ""
        if self._table.can_pause and not self._enabled.value:
            effect = "It is written down as paused, and finds nothing until it is resumed."
        if trial is None or self._tried_text != text:
            return f"It was not tried on past events. {effect}"
        return f"Among {count(trial.rows)} past rows it found {count(trial.count)} matches. {effect}"

    async def _save(self, rule_id: str, text: str) -> None:
        caller, table, known, enabled = self._visit.caller, self._table, self._known, bool(self._enabled.value)
        try:
            caller.require("write", table.topic)
            version = await read(lambda: write(context().log, table, rule_id, text, enabled=enabled, known=known))
        except HeadwaterError as error:
            tell(str(error), good=False)
            return
        context().note(caller, "rule.write", f"{table.topic}/{rule_id}")
        tell(f"{rule_id} is live from the next batch on (version {version}).")
        ui.navigate.to(f"/console/rules/{quote(table.topic, safe='')}/edit?id={quote(rule_id, safe='')}")


def show_trial(trial: Trial, kind: str) -> None:
    """What was found, in a sentence and as rows."""
    looked = f"{count(trial.rows)} rows from {moment(trial.first_us)} to {moment(trial.last_us)} UTC, in {shown_seconds(trial.seconds)}"
    title = f"{count(trial.count)} {'match' if trial.count == 1 else 'matches'}"
    with card(flush=True, classes="whole-cells" if kind == "rules" else ""):
        with block("card-head"):
            ui.html(f"<h2>{title}</h2>", sanitize=False)
            ui.label(f"in {looked}").classes("quiet small")
        table = Table(_columns(kind), label="Matches of the trial", none="It would have found nothing.")
        table.set_rows([Row(_cells(trial, place, kind), key=place) for place in range(min(SHOWN, len(trial.matches)))])
        if trial.count > SHOWN:
            with block("pager"):
                ui.label(f"The newest {SHOWN} are shown.")


def _columns(kind: str) -> list[Column]:
    if kind == "searches":
        return [Column(name="Score", align="right"), Column(name="Document", clip=True), Column(name="Where it fits")]
    return [
        Column(name="Ended"),
        Column(name="Key"),
        Column(name="Events", width="190px"),
        Column(name="Measures", clip=True),
    ]


def _cells(trial: Trial, place: int, kind: str) -> list[object]:
    one = trial.matches[place]
    if kind == "searches":
        return [one.values["score"], told_of(one), drawn(highlighted(one.values.get("highlights", "null")))]
    points = points_of(trial.events.get(one.place, []), trial.column)
    return [moment(one.last_us), ", ".join(one.key.values()), drawn(small(points)) if points else "–", told_of(one)]


def _explained(bench: TrialInput) -> None:
    if bench.kind == "searches":
        words = [
            "Words and phrases, fields as `title:storm`, ranges as `price:<10`, AND, OR, NOT and brackets; or JSON in Elasticsearch's form."
        ]
    else:
        by = ", ".join(bench.by) or "no key"
        words = [
            f"For each {by}, in the order of {bench.time or 'no time'}.",
            "MEASURES says what a match tells, PATTERN in which order rows come, DEFINE what each is, WITHIN how long it may last.",
        ]
    for one in words:
        ui.markdown(one).classes("small")
