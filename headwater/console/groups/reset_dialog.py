"""The dialog that moves a group: where to, what that means for each partition, and only then the button."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

from nicegui import ui
from nicegui.events import GenericEventArguments

from headwater.console.kit.layout import block, button, select
from headwater.console.kit.live import attempt, read
from headwater.console.kit.table import Column, Pages, Row, Table, toned
from headwater.console.kit.words import count, whole_number
from headwater.console.visit import Visit
from headwater.errors import HeadwaterError
from headwater.log.clients.groups import GroupInfo, MemberInfo, SeekStep
from headwater.log.remote.wire import offsets_to_text
from headwater.services.groups import effect_of

Way = Literal["start", "end", "offset", "time", "by"]
#: What the page calls the ways.
WAYS: dict[Way, str] = {
    "start": "Start",
    "end": "End",
    "offset": "Offset",
    "time": "Time",
    "by": "Back or forward",
}
EVERY = "all partitions"
HINTS: dict[Way, str] = {
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
    """What the user has chosen: a topic, some of its partitions, and where to; `text` says more where the way needs it."""

    topic: str | None
    partitions: tuple[int, ...]
    way: Way
    text: str = ""

    @property
    def position(self) -> str:
        """The chosen position, as `headwater.services.positions` reads it.

        >>> ResetChoice(topic="orders", partitions=(), way="by", text=" −1,200 ").position
        'shift:-1200'
        """
        match self.way:
            case "offset":
                return str(whole_number(self.text, expected="an offset such as 1200", least=0))
            case "time":
                return "@" + self.text.strip().removeprefix("@")
            case "by":
                expected = "a number of rows, such as -100 to read 100 rows again"
                return f"shift:{whole_number(self.text, expected=expected)}"
            case _:
                return self.way


@dataclass(frozen=True, kw_only=True)
class ResetPreview:
    """What a choice would do, and who stands in its way; or why there is nothing to preview."""

    choice: ResetChoice | None
    steps: list[SeekStep]
    alive: list[MemberInfo]
    trouble: str = ""


class ResetDialog:
    """The dialog of one group. `after` is called when the group has moved."""

    def __init__(self, visit: Visit, group: str, after: Callable[[str], Awaitable[Any]]) -> None:
        self._visit, self._group, self._after = visit, group, after
        self._preview = ResetPreview(choice=None, steps=[], alive=[])
        self._previews = 0
        with ui.dialog().props('aria-label="Reset"') as self._dialog, block("card stack"):
            ui.html(f"<h2>Reset {escape(group)}</h2>", sanitize=False)
            with block("row-flex"):
                self._topic = select([], value=None, label="Topic", on_change=self._topic_chosen, named=True)
                self._partition = select([EVERY], value=EVERY, label="Partitions", on_change=self._changed, named=True)
            with block("row-flex"):
                self._way = ui.toggle(dict(WAYS), value="start", on_change=self._way_chosen)
                self._way.classes("seg").props('flat no-caps aria-label="Where to"')
                self._text = ui.input(on_change=self._changed).classes("field grow")
                self._text.props('outlined dense debounce=250 aria-label="Place"')
            self._hint = ui.label("").classes("quiet small")
            self._alive = block("note bad").props('role="alert"')
            with self._alive:
                self._who = ui.label("").classes("grow")
            with block("frame"):
                self._table = Table(COLUMNS, label="What the reset does", none="Choose a place.")
                self._pages = Pages(self._show_steps, size=12)
            self._sentence = ui.label("").classes("strong").props('role="status"')
            with block("row-flex end"):
                button("Cancel", self._dialog.close, kind="ghost")
                self._do = button("Reset group", kind="primary")
                # Which preview the browser shows comes with the click: one that has come meanwhile was not seen.
                self._do.on("click", self._reset, js_handler="(e) => emit(e.currentTarget.dataset.preview)")

    async def open(self) -> None:
        found = await attempt(lambda: self._visit.services.groups.describe(self._group))
        if found is None:
            return
        topics = sorted({lag.topic for lag in found.partitions})
        self._found = found
        self._topic.set_options(topics, value=topics[0] if topics else None)
        self._dialog.open()
        await self._way_chosen()

    # -- what is chosen -----------------------------------------------------------------------------------------------

    async def _topic_chosen(self) -> None:
        numbers = sorted(lag.partition for lag in self._found.partitions if lag.topic == self._topic.value)
        self._partition.set_options([EVERY, *map(str, numbers)], value=EVERY)
        await self._changed()

    async def _way_chosen(self) -> None:
        way = self._chosen_way
        self._hint.set_text(HINTS[way])
        self._text.set_visibility(way in ("offset", "time", "by"))
        self._text.set_value({"offset": self._current(), "time": "1h", "by": "-100"}.get(way, ""))
        await self._changed()

    @property
    def _chosen_way(self) -> Way:
        return next(way for way in WAYS if way == self._way.value)

    def _chosen_partitions(self) -> list[int]:
        return [] if self._partition.value in (None, EVERY) else [int(self._partition.value)]

    def _current(self) -> str:
        """Where the group is now: the offset that the user begins to edit."""
        chosen = self._chosen_partitions()
        at = [
            lag.committed
            for lag in self._found.partitions
            if lag.topic == self._topic.value and lag.committed is not None and (not chosen or lag.partition in chosen)
        ]
        return str(min(at)) if at else "0"

    # -- the preview --------------------------------------------------------------------------------------------------

    async def _changed(self) -> None:
        if not self._dialog.value:
            return
        self._do.set_enabled(False)  # until it is seen what the new choice does
        choice = self._choice()
        preview = await read(lambda: self._look(choice))
        if choice == self._choice():  # the user may have changed the choice meanwhile
            self._show(preview)

    def _choice(self) -> ResetChoice:
        return ResetChoice(
            topic=self._topic.value,
            partitions=tuple(self._chosen_partitions()),
            way=self._chosen_way,
            text=self._text.value or "",
        )

    def _look(self, choice: ResetChoice) -> ResetPreview:
        service, chosen = self._visit.services.groups, list(choice.partitions) or None
        try:
            found = service.describe(self._group)
            steps = service.seek(self._group, str(choice.topic), choice.position, partitions=chosen, dry_run=True)
        except HeadwaterError as error:
            return ResetPreview(choice=choice, steps=[], alive=[], trouble=str(error))
        return ResetPreview(choice=choice, steps=steps, alive=_alive(found))

    def _show(self, preview: ResetPreview) -> None:
        self._preview = preview
        self._previews += 1
        self._do.props(f'data-preview="{self._previews}"')
        self._alive.set_visibility(bool(preview.alive))
        self._who.set_text(f"It cannot be moved while it is read for. Stop these first: {names_of(preview.alive)}.")
        self._sentence.set_text(preview.trouble or f"{effect_of(preview.steps).capitalize()}.")
        self._sentence.classes(
            add="tone-text-bad" if preview.trouble else "", remove="" if preview.trouble else "tone-text-bad"
        )
        allowed = self._topic.value is not None and self._visit.caller.may("admin", str(self._topic.value))
        self._do.set_enabled(bool(preview.steps) and not preview.alive and not preview.trouble and allowed)
        if not allowed:
            self._sentence.set_text(f"{self._sentence.text} Resetting it needs admin rights on this topic.")
        self._show_steps()

    def _show_steps(self) -> None:
        self._table.set_rows([_step(one) for one in self._pages.part(self._preview.steps)])

    # -- the act ------------------------------------------------------------------------------------------------------

    async def _reset(self, event: GenericEventArguments) -> None:
        preview = self._preview
        is_seen = str(event.args) == str(self._previews)
        if not is_seen or preview.choice != self._choice():  # pressed before the preview of a new choice was there
            return
        steps = await attempt(lambda: self._reset_now(preview))
        if steps is None:
            await self._changed()
            return
        self._dialog.close()
        await self._after(f"{self._group}: {effect_of(steps)}.")

    def _reset_now(self, preview: ResetPreview) -> list[SeekStep]:
        """Move the group to the offsets that were shown, though rows may have come since."""
        topic = str(preview.choice and preview.choice.topic)
        shown = offsets_to_text({step.partition: step.new for step in preview.steps})
        return self._visit.services.groups.seek(self._group, topic, shown)


def names_of(members: list[MemberInfo]) -> str:
    """Members with their processes, so that the user can find and stop them."""
    shown = ", ".join(f"{one.id} (process {one.pid} on {one.host})" for one in members[:3])
    return shown + (f" and {len(members) - 3} more" if len(members) > 3 else "")


def _alive(found: GroupInfo) -> list[MemberInfo]:
    return [one for one in found.members if one.alive]


def _step(one: SeekStep) -> Row:
    if one.rows > 0:
        effect = toned(f"{count(one.rows)} read again", "good")
    elif one.rows < 0:
        effect = toned(f"{count(-one.rows)} passed over", "warn")
    else:
        effect = toned("stays", "quiet")
    now = toned("no commit", "quiet") if one.current is None else count(one.current)
    return Row([str(one.partition), now, "→", count(one.new), effect], key=one.partition)
