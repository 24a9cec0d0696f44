"""The dialog that resets a group: it shows what a position means for each partition before anything is changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nicegui import ui
from nicegui.events import GenericEventArguments

from headwater.console.context import Visit
from headwater.console.kit.controls import button, select
from headwater.console.kit.layout import block, subtitle
from headwater.console.kit.live import attempt, read
from headwater.console.kit.table import Column, Pages, Row, Table, toned
from headwater.console.kit.words import count, whole_number
from headwater.errors import HeadwaterError
from headwater.log.clients.groups import MemberInfo, SeekStep
from headwater.log.port import Lag
from headwater.log.remote.wire import offsets_to_text
from headwater.services.groups import effect_of

Kind = Literal["start", "end", "offset", "time", "by"]
#: The kinds of positions, and their labels.
KINDS: dict[Kind, str] = {
    "start": "Start",
    "end": "End",
    "offset": "Offset",
    "time": "Time",
    "by": "Back or forward",
}
ALL_PARTITIONS = "all partitions"
HINTS: dict[Kind, str] = {
    "start": "Everything that is kept is read again.",
    "end": "What waits is passed over; only new rows are read.",
    "offset": "The offset of the next row to read. An offset outside a partition moves to its nearer end.",
    "time": "UTC, such as 2026-11-15 10:00, or how long ago, such as 1h. The first row appended at or after it is read next.",
    "by": "Rows, from where the group is now: -100 reads the last 100 again in each partition, 100 passes as many over.",
}
COLUMNS = (
    Column(name="partition", label="Partition", align="right"),
    Column(name="current", label="Now at", align="right"),
    Column(name="arrow", label=" "),
    Column(name="new", label="Goes to", align="right"),
    Column(name="effect", label="Which means", align="right"),
)


@dataclass(frozen=True, kw_only=True)
class ResetChoice:
    """What the user has chosen: a topic, some of its partitions or all, and a position; `text` is its offset, time or shift."""

    topic: str | None
    partitions: tuple[int, ...]
    kind: Kind
    text: str = ""

    @property
    def position(self) -> str:
        """The chosen position, as `headwater.services.positions` reads it.

        >>> ResetChoice(topic="orders", partitions=(), kind="by", text=" −1,200 ").position
        'shift:-1200'
        """
        match self.kind:
            case "offset":
                return str(whole_number(self.text, expected="an offset such as 1200", least=0))
            case "time":
                return "@" + self.text.strip().removeprefix("@")
            case "by":
                expected = "a number of rows, such as -100 to read 100 rows again"
                return f"shift:{whole_number(self.text, expected=expected)}"
            case _:
                return self.kind


@dataclass(frozen=True, kw_only=True)
class ResetPreview:
    """What a choice would do, and the members that prevent it; or why there is nothing to preview."""

    choice: ResetChoice | None = None
    steps: Sequence[SeekStep] = ()
    alive: Sequence[MemberInfo] = ()
    problem: str = ""


class ResetDialog:
    """The dialog of one group. `after` is called with the effect when the group was reset."""

    # Any: the result of a coroutine.
    def __init__(self, visit: Visit, group: str, after: Callable[[str], Awaitable[Any]]) -> None:
        self._service, self._caller, self._group, self._after = visit.services.groups, visit.caller, group, after
        self._lags: list[Lag] = []
        self._preview = ResetPreview()
        self._previews = 0
        with ui.dialog().props('aria-label="Reset"') as self._dialog, block("card stack"):
            subtitle(f"Reset {group}")
            with block("row-flex"):
                self._topic = select([], value=None, label="Topic", on_change=self._choose_topic, named=True)
                self._partition = select(
                    [ALL_PARTITIONS], value=ALL_PARTITIONS, label="Partitions", on_change=self._try, named=True
                )
            with block("row-flex"):
                self._kind = ui.toggle(dict(KINDS), value="start", on_change=self._choose_kind)
                self._kind.classes("seg").props('flat no-caps aria-label="Where to"')
                self._text = ui.input(on_change=self._try).classes("field grow")
                self._text.props('outlined dense debounce=250 aria-label="Place"')
            self._hint = ui.label("").classes("quiet small")
            self._alive = block("note bad").props('role="alert"')
            with self._alive:
                self._members = ui.label("").classes("grow")
            with block("frame"):
                self._table = Table(COLUMNS, label="What the reset does", none="Choose a place.")
                self._pages = Pages(self._show_steps, size=12)
            self._summary = ui.label("").classes("strong").props('role="status"')
            with block("row-flex end"):
                button("Cancel", self._dialog.close, kind="ghost")
                self._do = button("Reset group", kind="primary")
                # The click says which preview the browser shows: a newer one was not seen by the user.
                self._do.on("click", self._reset, js_handler="(e) => emit(e.currentTarget.dataset.preview)")

    async def open(self) -> None:
        info = await attempt(lambda: self._service.describe(self._group))
        if info is None:
            return
        self._lags = info.partitions
        topics = sorted({lag.topic for lag in self._lags})
        self._topic.set_options(topics, value=topics[0] if topics else None)
        self._dialog.open()
        await self._choose_kind()

    # -- the choice ---------------------------------------------------------------------------------------------------

    async def _choose_topic(self) -> None:
        numbers = sorted(lag.partition for lag in self._lags if lag.topic == self._topic.value)
        self._partition.set_options([ALL_PARTITIONS, *map(str, numbers)], value=ALL_PARTITIONS)
        await self._try()

    async def _choose_kind(self) -> None:
        choice = self._choice()
        self._hint.set_text(HINTS[choice.kind])
        self._text.set_visibility(choice.kind in ("offset", "time", "by"))
        committed = [
            lag.committed
            for lag in self._lags
            if lag.topic == choice.topic
            and lag.committed is not None
            and lag.partition in (choice.partitions or [lag.partition])
        ]
        texts = {"offset": str(min(committed, default=0)), "time": "1h", "by": "-100"}
        self._text.set_value(texts.get(choice.kind, ""))
        await self._try()

    def _choice(self) -> ResetChoice:
        partition = self._partition.value
        return ResetChoice(
            topic=self._topic.value,
            partitions=() if partition in (None, ALL_PARTITIONS) else (int(partition),),
            kind=next(kind for kind in KINDS if kind == self._kind.value),
            text=self._text.value or "",
        )

    # -- the preview --------------------------------------------------------------------------------------------------

    async def _try(self) -> None:
        """Show what the choice does."""
        if not self._dialog.value:
            return
        self._do.set_enabled(False)  # until the effect of the new choice is shown
        choice = self._choice()
        preview = await read(lambda: self._preview_of(choice))
        if choice == self._choice():  # else the user has changed the choice meanwhile
            self._show(preview)

    def _preview_of(self, choice: ResetChoice) -> ResetPreview:
        partitions = list(choice.partitions) or None
        try:
            members = self._service.describe(self._group).members
            steps = self._service.seek(
                self._group, str(choice.topic), choice.position, partitions=partitions, dry_run=True
            )
        except HeadwaterError as error:
            return ResetPreview(choice=choice, problem=str(error))
        return ResetPreview(choice=choice, steps=steps, alive=[member for member in members if member.alive])

    def _show(self, preview: ResetPreview) -> None:
        self._preview = preview
        self._previews += 1
        self._do.props(f'data-preview="{self._previews}"')
        self._alive.set_visibility(bool(preview.alive))
        self._members.set_text(f"It cannot be moved while it is read for. Stop these first: {names_of(preview.alive)}.")
        problem, topic = preview.problem, self._topic.value
        may_reset = topic is not None and self._caller.may("admin", str(topic))
        rights = "" if may_reset else " Resetting it needs admin rights on this topic."
        self._summary.set_text(f"{problem or f'{effect_of(preview.steps).capitalize()}.'}{rights}")
        self._summary.classes(add="tone-text-bad" if problem else "", remove="" if problem else "tone-text-bad")
        self._do.set_enabled(bool(preview.steps) and not preview.alive and not problem and may_reset)
        self._show_steps()

    def _show_steps(self) -> None:
        self._table.set_rows([_step(step) for step in self._pages.part(self._preview.steps)])

    # -- the reset ----------------------------------------------------------------------------------------------------

    async def _reset(self, event: GenericEventArguments) -> None:
        preview = self._preview
        is_seen = str(event.args) == str(self._previews)
        if not is_seen or preview.choice != self._choice():  # clicked before the preview of a new choice was shown
            return
        # To the offsets that were shown, though rows may have come since.
        shown = offsets_to_text({step.partition: step.new for step in preview.steps})
        topic = str(preview.choice and preview.choice.topic)
        steps = await attempt(lambda: self._service.seek(self._group, topic, shown))
        if steps is None:
            await self._try()
            return
        self._dialog.close()
        await self._after(f"{self._group}: {effect_of(steps)}.")


def names_of(members: Sequence[MemberInfo]) -> str:
    """Members with their processes, so that the user can find and stop them."""
    shown = ", ".join(f"{member.id} (process {member.pid} on {member.host})" for member in members[:3])
    return shown + (f" and {len(members) - 3} more" if len(members) > 3 else "")


def _step(step: SeekStep) -> Row:
    if step.rows > 0:
        effect = toned(f"{count(step.rows)} read again", "good")
    elif step.rows < 0:
        effect = toned(f"{count(-step.rows)} passed over", "warn")
    else:
        effect = toned("stays", "quiet")
    current = toned("no commit", "quiet") if step.current is None else count(step.current)
    return Row([str(step.partition), current, "→", count(step.new), effect], key=step.partition)
