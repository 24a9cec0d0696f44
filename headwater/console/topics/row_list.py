"""A list of rows of a topic, one line each; only what is in sight is in the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import quote

from nicegui.element import Element

from headwater.console.kit.words import moment
from headwater.log.port import Topic
from headwater.services.row_text import Row

#: A line shows so much of a value; all of it stands on the row's own page.
LINE_CHARACTERS_MAX = 320
KEY_CHARACTERS_MAX = 120
#: How much of a value stands before what was sought in it.
BEFORE_CHARACTERS = 16


def row_path(topic: str, partition: int, offset: int) -> str:
    """The address of one row."""
    return f"/console/topics/{quote(topic, safe='')}/{partition}/{offset}"


class RowList(Element, component="rows.js"):
    """The list on the page. With `fit` it is as high as its rows; otherwise it scrolls within `height`."""

    def __init__(
        self,
        topic: Topic,
        *,
        label: str,
        none: str,
        # Any: showing a row may have to be waited for.
        on_pick: Callable[[int, int], Any] | None = None,
        on_close: Callable[[], Any] | None = None,
        fit: bool = False,
        height: str = "max(320px, calc(100vh - 330px))",
    ) -> None:
        super().__init__()
        self._topic = topic
        self._props.update(
            rows=[],
            turn=0,
            label=label,
            none=none,
            keyed=bool(topic.key) or topic.schemaless,
            timed=topic.time_column is not None,
            numbered=topic.partitions > 1,
            fit=fit,
            height=height,
            mark="",
        )
        if on_pick is not None:
            self.on("pick", lambda event: on_pick(*place_of(str(event.args))))
        if on_close is not None:
            self.on("close", lambda _: on_close())

    def set_rows(self, rows: Iterable[Row], *, mark: str = "") -> None:
        """Show these rows and no others."""
        lines = [self._line(one, mark) for one in rows]
        if (lines, mark) != (self._props["rows"], self._props["mark"]):
            self._props.update(rows=lines, mark=mark, turn=self._props["turn"] + 1)
            self.update()

    def set_none(self, text: str) -> None:
        """What stands where there are no rows."""
        self._props["none"] = text
        self.update()

    async def push(self, rows: Sequence[Row], *, most: int, gap: str = "") -> int | None:
        """Put rows on top, the newest first, and wait until the browser has them. Says how many it keeps, if it is there."""
        lines: list[dict[str, Any]] = [self._line(one) for one in reversed(rows)]
        if gap:
            lines.append({"i": f"gap before {rows[0].partition}/{rows[0].offset}", "gap": gap})
        kept = await self.run_method("push", lines, most, timeout=20)
        return None if kept is None else int(kept)

    def empty(self) -> None:
        self.run_method("empty")

    def unpick(self) -> None:
        self.run_method("unpick")

    def _line(self, one: Row, mark: str = "") -> dict[str, Any]:
        return {
            "i": f"{one.partition}/{one.offset}",
            "p": str(one.partition),
            "o": str(one.offset),
            "href": row_path(self._topic.name, one.partition, one.offset),
            "at": moment(one.appended_us),
            "ev": moment(one.event_us),
            "key": clipped(one.key or "", KEY_CHARACTERS_MAX),
            "value": around(one.value or "", mark) if one.value is not None else "null",
            "form": one.form,
            "t": one.is_tombstone,
            "h": str(len(one.headers)) if one.headers else "",
            "ht": "\n".join(f"{name}: {clipped(value, KEY_CHARACTERS_MAX)}" for name, value in one.headers),
        }


def place_of(text: str) -> tuple[int, int]:
    """The partition and the offset of a line.

    >>> place_of("3/73314510714175488")
    (3, 73314510714175488)
    """
    partition, _, offset = text.partition("/")
    return int(partition), int(offset)


def clipped(text: str, letters: int) -> str:
    """A text, cut where it is long.

    >>> clipped("abc", 3), clipped("abcd", 3)
    ('abc', 'ab…')
    """
    return text if len(text) <= letters else text[: letters - 1] + "…"


def around(text: str, mark: str) -> str:
    """The part of a value that a line shows: its beginning, or what stands around the text that was sought.

    A line may be narrow, so that only a little stands before it.

    >>> around('{"order": 73314510714175488, "customer": "grace"}', "grace")
    '…8, "customer": "grace"}'
    """
    found = text.lower().find(mark.lower()) if mark else -1
    begin = found - BEFORE_CHARACTERS
    if begin <= 0:
        return clipped(text, LINE_CHARACTERS_MAX)
    return "…" + clipped(text[begin:], LINE_CHARACTERS_MAX)
