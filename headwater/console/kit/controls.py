"""Buttons, and boxes to search, choose and write in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from nicegui import ui


# Any: NiceGUI takes plain and asynchronous functions.
def button(
    text: str, on_click: Callable[..., Any] | None = None, *, icon: str = "", kind: str = "", label: str = ""
) -> ui.button:
    """A button; `kind` is "", "primary", "danger" or "ghost". One without a text needs a `label`."""
    # No colour of Quasar's: its rules have precedence over ours.
    made = ui.button(text, on_click=on_click, icon=icon or None, color=None).props("flat no-caps")
    made.classes(f"btn {kind}{'' if text else ' icon'}")
    if label:
        made.props(f'aria-label="{escape(label)}"').tooltip(label)
    return made


# Any: as above.
def plain_button(text: str, on_click: Callable[..., Any]) -> ui.element:
    """A button without Quasar's look; elements made inside `with` stand after its text."""
    made = ui.element("button").props('type="button"').on("click.prevent", on_click)
    with made:
        ui.label(text)
    return made


def search_box(placeholder: str, on_change: Callable[..., Any]) -> ui.input:
    """A box that filters; `/` moves the focus to it."""
    made = ui.input(placeholder=placeholder, on_change=on_change).classes("field")
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
    """A box to choose from. With `named` its label stands above it, as in a form; in a toolbar the value is enough."""
    made = ui.select(options, value=value, on_change=on_change, label=label if named else None).classes("field")
    made.props(f'outlined dense options-dense aria-label="{escape(label)}"')
    return made


def text_box(
    label: str, *, value: str = "", placeholder: str = "", lines: int = 1, code: bool = False
) -> ui.input | ui.textarea:
    """A box to write in, with its label above it; `placeholder` is an example."""
    made = (ui.textarea if lines > 1 else ui.input)(label, value=value, placeholder=placeholder)
    made.classes(f"field{' code-input' if code else ''}").props("outlined dense")
    if lines > 1:
        made.props(f"rows={lines}")
    return made


class Segments:
    """Buttons in a row of which one is pressed; `value` is its text."""

    # Any: NiceGUI takes plain and asynchronous functions.
    def __init__(self, options: Sequence[str], *, value: str, label: str, on_change: Callable[[], Any]) -> None:
        self.value = value
        self._on_change = on_change
        with ui.element("div").classes("seg").props(f'role="group" aria-label="{escape(label)}"'):
            self._buttons = {option: self._button(option) for option in options}
        self._mark_pressed()

    def _button(self, option: str) -> ui.element:
        return plain_button(option, lambda: self._press(option))

    def _press(self, option: str) -> Any:
        self.value = option
        self._mark_pressed()
        return self._on_change()

    def _mark_pressed(self) -> None:
        for option, made in self._buttons.items():
            is_pressed = option == self.value
            made.classes(add="on" if is_pressed else "", remove="" if is_pressed else "on")
            made.props(f'aria-pressed="{str(is_pressed).lower()}"')
