"""A few choices side by side, of which one holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from nicegui import ui


class Segments:
    """Buttons in a row; `value` is the one that is pressed."""

    # Any: what a choice leads to may have to be waited for.
    def __init__(self, options: Sequence[str], *, value: str, label: str, on_change: Callable[[], Any]) -> None:
        self.value = value
        self._on_change = on_change
        self._buttons: dict[str, ui.element] = {}
        with ui.element("div").classes("seg").props(f'role="group" aria-label="{escape(label)}"'):
            for one in options:
                made = ui.element("button").props('type="button"').on("click", lambda _, one=one: self._press(one))
                with made:
                    ui.label(one)
                self._buttons[one] = made
        self._paint()

    def _press(self, one: str) -> Any:
        self.value = one
        self._paint()
        return self._on_change()

    def _paint(self) -> None:
        for name, made in self._buttons.items():
            is_on = name == self.value
            made.classes(add="on" if is_on else "", remove="" if is_on else "on")
            made.props(f'aria-pressed="{"true" if is_on else "false"}"')
