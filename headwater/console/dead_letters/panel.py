"""One dead letter, whole: why it was given up, where its row stood, the row itself, and what may be done."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any
from urllib.parse import quote

from nicegui import ui

from headwater.console.kit.layout import block, button, pill
from headwater.console.kit.pretty import coloured, dump, is_json, pretty
from headwater.console.kit.words import moment
from headwater.console.topics.row_list import row_path
from headwater.console.topics.row_panel import facts_list
from headwater.log.dead_letters import State, StoredDeadLetter
from headwater.services.row_text import headers_of, text_of

TONES: dict[State, str] = {"open": "warn", "parked": "", "redriven": "good"}
STATE_WORDS: dict[State, str] = {"open": "open", "parked": "parked", "redriven": "redriven"}
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

    def show(self, found: StoredDeadLetter | None) -> None:
        self._box.clear()
        self._box.set_visibility(found is not None)
        if found is not None:
            with self._box, block("stack"):
                self._head(found)
                _why(found)
                _place(found)
                _row(found)

    def _head(self, found: StoredDeadLetter) -> None:
        with block("row-flex between"):
            with block("row-flex"):
                ui.html(f"<h2>{escape(found.letter.error)}</h2>", sanitize=False)
                pill(STATE_WORDS[found.state], TONES[found.state])
            button("", self._close, icon="close", kind="ghost", label="Close the dead letter")
        if found.state != "redriven":
            with block("row-flex"):
                if found.state == "open":
                    button("Redrive this one", lambda: self._redrive(found), icon="redo")
                    button("Park", lambda: self._park(found), icon="inventory_2")
                else:
                    button("Take up again", lambda: self._park(found), icon="unarchive")


def _why(found: StoredDeadLetter) -> None:
    text = found.letter.message
    ui.html("<h3>Why it was given up</h3>", sanitize=False)
    ui.html(
        f'<pre class="code" tabindex="0" aria-label="Message">{escape(text[:TEXT_MAX])}</pre>{_cut(len(text))}',
        sanitize=False,
    )


def _place(found: StoredDeadLetter) -> None:
    letter, status = found.letter, found.status
    ui.html("<h3>Where it stood</h3>", sanitize=False)
    address = row_path(letter.topic, letter.partition, letter.offset)
    corrected = f"/console/topics/{quote(letter.topic, safe='')}/produce?row={letter.partition}/{letter.offset}"
    ui.html(
        f'<a href="{escape(address)}">{escape(letter.topic)}, partition {letter.partition}, offset {letter.offset}</a>'
        f' · <a href="{escape(corrected)}">produce a corrected copy</a>',
        sanitize=False,
    )
    facts = [
        ("Given up", f"{moment(letter.at_us)} UTC"),
        ("By", letter.query or "–"),
        ("Attempt", str(letter.attempt)),
        ("Dead letter", f"partition {found.place.partition}, offset {found.place.offset}"),
    ]
    if status is not None:
        gone = f" to {status.to}" if status.to else ""
        facts.append((STATE_WORDS[status.state].capitalize(), f"{moment(status.at_us)} UTC{gone}"))
    facts_list(facts)


def _row(found: StoredDeadLetter) -> None:
    letter = found.letter
    ui.html("<h3>The row</h3>", sanitize=False)
    text, form = (letter.row, "json") if letter.row is not None else text_of(letter.value)
    if text is None:
        ui.label("null").classes("quiet mono")
    else:
        if form == "hex":
            html = escape(dump((letter.value or b"")[:TEXT_MAX]))
        else:
            html = coloured(pretty(text)[:TEXT_MAX]) if is_json(text) else escape(text[:TEXT_MAX])
        ui.html(f'<pre class="code json" tabindex="0" aria-label="Row">{html}</pre>{_cut(len(text))}', sanitize=False)
    key = text_of(letter.key)[0]
    pairs = [*([("key", key)] if key is not None else []), *headers_of(letter.headers)]
    if pairs:
        ui.html("<h3>Key and headers</h3>", sanitize=False)
        facts_list(pairs)


def _cut(length: int) -> str:
    return (
        f'<div class="quiet small">{TEXT_MAX:,} of {length:,} characters are shown.</div>' if length > TEXT_MAX else ""
    )
