"""Boxes, headings and buttons, in the console's one look (`static/console.css` says what each class is)."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from typing import Any

from nicegui import ui

from headwater.console.kit import why as explained


def block(classes: str) -> ui.element:
    """A box of these classes; used with `with`."""
    return ui.element("div").classes(classes)


def sentence(text: str) -> str:
    """A sentence as HTML, in which names stand out: they are written between backticks.

    >>> sentence("keyed by `customer & co`")
    'keyed by <code>customer &amp; co</code>'
    """
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def heading(title: str, *, under: str = "", why: str = "") -> ui.element:
    """The head of a page; `under` is a sentence. What is made inside `with` stands at its right: buttons and switches."""
    with block("hw-head"):
        with block("texts"):
            with block("row-flex"):
                ui.html(f"<h1>{escape(title)}</h1>", sanitize=False)
                if why:
                    explained.button(why)
            if under:
                ui.html(sentence(under), sanitize=False).classes("sub")
        return block("row-flex")


def card(title: str = "", *, why: str = "", flush: bool = False, classes: str = "") -> ui.element:
    """A surface with a title; `flush` for one that holds a table from edge to edge."""
    made = block(f"card{' flush' if flush else ''} {classes}")
    if title:
        with made, block("card-head"):
            ui.html(f"<h2>{escape(title)}</h2>", sanitize=False)
            if why:
                explained.button(why)
    return made


# Any: NiceGUI takes plain and asynchronous functions.
def button(
    text: str, on_click: Callable[..., Any] | None = None, *, icon: str = "", kind: str = "", label: str = ""
) -> ui.button:
    """A button; `kind` is "", "primary", "danger" or "ghost". One without a text needs a `label`."""
    # No colour of Quasar's: its rules come first, whatever ours say.
    made = ui.button(text, on_click=on_click, icon=icon or None, color=None).props("flat no-caps")
    made.classes(f"btn {kind}{'' if text else ' icon'}")
    if label:
        made.props(f'aria-label="{escape(label)}"').tooltip(label)
    return made


def search_box(placeholder: str, on_change: Callable[..., Any], *, value: str = "") -> ui.input:
    """A box that filters; `/` goes to it."""
    made = ui.input(placeholder=placeholder, value=value, on_change=on_change).classes("field")
    made.props(f'outlined dense clearable debounce=200 data-search aria-label="{escape(placeholder)}"').style(
        "width: 260px"
    )
    with made.add_slot("prepend"):
        ui.icon("search").style("font-size: 18px")
    return made


# Any: options and values of a select are of any type.
def select(
    options: Any, *, value: Any, label: str, on_change: Callable[..., Any] | None = None, named: bool = False
) -> ui.select:
    """A box to choose from. With `named` its label stands above it, as in a form; in a toolbar the value says enough."""
    made = ui.select(options, value=value, on_change=on_change, label=label if named else None).classes("field")
    made.props(f'outlined dense options-dense aria-label="{escape(label)}"')
    return made


def text_box(
    label: str, *, value: str = "", placeholder: str = "", lines: int = 1, code: bool = False
) -> ui.input | ui.textarea:
    """A box to write in, with its label above it; `placeholder` is an example of what to write."""
    made = (ui.textarea if lines > 1 else ui.input)(label, value=value, placeholder=placeholder)
    made.classes(f"field{' code-input' if code else ''}").props("outlined dense")
    if lines > 1:
        made.props(f"rows={lines}")
    return made


def pill(text: str, tone: str = "") -> ui.html:
    """A small mark; `tone` is "", "good", "warn", "bad", "info" or "accent"."""
    return ui.html(f'<span class="pill {tone}">{escape(text)}</span>', sanitize=False)


def note(text: str, tone: str = "info") -> ui.element:
    """A line that wants to be read."""
    made = block(f"note {tone}")
    with made:
        ui.label(text).classes("grow")
    return made


def empty(title: str, hint: str = "", *, icon: str = "inbox", command: str = "") -> ui.element:
    """What stands where nothing is yet, with what to do about it."""
    made = block("empty")
    with made:
        ui.icon(icon).props('aria-hidden="true"')
        ui.html(f"<h2>{escape(title)}</h2>", sanitize=False)
        if hint:
            ui.label(hint)
        if command:
            ui.html(f"<code>{escape(command)}</code>", sanitize=False)
    return made


def tabs(options: dict[str, str], *, current: str) -> ui.html:
    """Links that look like tabs: label → address. The address tells which one is open, so each can be bookmarked."""
    links = "".join(
        f'<a href="{escape(address)}"{" class=on aria-current=page" if label == current else ""}>{escape(label)}</a>'
        for label, address in options.items()
    )
    return ui.html(f'<div class="tabs" role="navigation">{links}</div>', sanitize=False)
