"""One dead letter, whole: the reason, the place of its row, the row itself, and buttons to redrive and park it."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from nicegui import ui

from headwater.console.kit.controls import button
from headwater.console.kit.layout import block, code, facts, html, json_code, pill, subtitle
from headwater.console.kit.values import coloured, dump, is_json, pretty
from headwater.console.kit.words import moment
from headwater.console.topics.frame import row_path, topic_path
from headwater.log.dead_letters import State, StoredDeadLetter
from headwater.services.row_text import headers_of, text_of

TONES: dict[State, str] = {"open": "warn", "parked": "", "redriven": "good"}
#: Longer values and traces are cut.
TEXT_MAX = 20_000


class DeadLetterPanel:
    """The panel beside the list. The page redrives and parks."""

    # Any: NiceGUI takes plain and asynchronous functions.
    def __init__(
        self,
        *,
        redrive: Callable[[StoredDeadLetter], Any],
        park: Callable[[StoredDeadLetter], Any],
        close: Callable[[], Any],
    ) -> None:
        self._redrive, self._park, self._close = redrive, park, close
        self._box = ui.element("aside").classes("card beside").props('aria-label="Dead letter" tabindex="-1"')
        self._box.set_visibility(False)

    def show(self, dead_letter: StoredDeadLetter | None) -> None:
        """Show a dead letter; None hides the panel."""
        self._box.clear()
        self._box.set_visibility(dead_letter is not None)
        if dead_letter is not None:
            with self._box, block("stack"):
                self._head(dead_letter)
                _reason_and_place(dead_letter)
                _row(dead_letter)

    def _head(self, dead_letter: StoredDeadLetter) -> None:
        state = dead_letter.state
        with block("row-flex between"):
            with block("row-flex"):
                subtitle(dead_letter.letter.error)
                pill(state, TONES[state])
            button("", self._close, icon="close", kind="ghost", label="Close the dead letter")
        if state != "redriven":
            with block("row-flex"):
                if state == "open":
                    button("Redrive this one", lambda: self._redrive(dead_letter), icon="redo")
                    button("Park", lambda: self._park(dead_letter), icon="inventory_2")
                else:
                    button("Take up again", lambda: self._park(dead_letter), icon="unarchive")


def _reason_and_place(dead_letter: StoredDeadLetter) -> None:
    letter, status, place = dead_letter.letter, dead_letter.status, dead_letter.place
    subtitle("Why it was given up", level=3)
    code(letter.message[:TEXT_MAX], label="Message")
    _say_cut(len(letter.message))
    subtitle("Where it stood", level=3)
    source = escape(row_path(letter.topic, letter.partition, letter.offset))
    corrected = escape(f"{topic_path(letter.topic, 'Produce')}?row={letter.partition}/{letter.offset}")
    html(
        f'<a href="{source}">{escape(letter.topic)}, partition {letter.partition}, offset {letter.offset}</a>'
        f' · <a href="{corrected}">produce a corrected copy</a>'
    )
    values = [
        ("Given up", f"{moment(letter.at_us)} UTC"),
        ("By", letter.query or "–"),
        ("Attempt", str(letter.attempt)),
        ("Dead letter", f"partition {place.partition}, offset {place.offset}"),
    ]
    if status is not None:
        target = f" to {status.to}" if status.to else ""
        values.append((status.state.capitalize(), f"{moment(status.at_us)} UTC{target}"))
    facts(values)


def _row(dead_letter: StoredDeadLetter) -> None:
    letter = dead_letter.letter
    subtitle("The row", level=3)
    text, form = (letter.row, "json") if letter.row is not None else text_of(letter.value)
    if text is None:
        ui.label("null").classes("quiet mono")
    else:
        if form == "hex":
            markup = escape(dump((letter.value or b"")[:TEXT_MAX]))
        else:
            markup = coloured(pretty(text)[:TEXT_MAX]) if is_json(text) else escape(text[:TEXT_MAX])
        json_code(markup, label="Row")
        _say_cut(len(text))
    key = text_of(letter.key)[0]
    pairs = [*([("key", key)] if key is not None else []), *headers_of(letter.headers)]
    if pairs:
        subtitle("Key and headers", level=3)
        facts(pairs)


def _say_cut(length: int) -> None:
    if length > TEXT_MAX:
        ui.label(f"{TEXT_MAX:,} of {length:,} characters are shown.").classes("quiet small")
