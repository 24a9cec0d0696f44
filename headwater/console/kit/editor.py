"""An editor for SQL, patterns and queries, in colours, with mistakes underlined."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import escape
from typing import Any

from nicegui import ui


class Editor:
    """CodeMirror, in the console's look. Ctrl-Enter calls `on_run`."""

    # Any: NiceGUI takes plain and asynchronous functions.
    def __init__(
        self,
        *,
        label: str,
        dark: bool,
        value: str = "",
        lines: int = 6,
        language: str | None = "SQL",
        on_change: Callable[..., Any] | None = None,
        on_run: Callable[..., Any] | None = None,
    ) -> None:
        self._element = ui.codemirror(
            value,
            language=language,  # type: ignore[arg-type]  # one of a hundred literals
            theme="vscodeDark" if dark else "vscodeLight",
            line_wrapping=True,
            indent="  ",
            on_change=on_change,
            keymap={} if on_run is None else {"Mod-Enter": on_run},
        )
        self._element.classes("editor").style(f"min-height: {lines * 20 + 16}px")
        self._element.props(f'role="group" aria-label="{escape(label)}"')
        # The text area needs the name too: it has the focus, not the group around it.
        ui.timer(
            0.1,
            lambda: ui.run_javascript(
                f"getElement({self._element.id})?.editorPromise?.then(e => e.contentDOM.setAttribute('aria-label', {json.dumps(label)}))"
            ),
            once=True,
        )

    @property
    def value(self) -> str:
        return str(self._element.value or "")

    def set(self, text: str) -> None:
        self._element.decorations = []
        self._element.set_value(text)

    def insert(self, text: str) -> None:
        """Write at the cursor, in place of the selection."""
        ui.run_javascript(
            f"{{ const e = getElement({self._element.id}).editor; "
            f"e.dispatch(e.state.replaceSelection({json.dumps(text)})); e.focus(); }}"
        )

    def complete(self, word: str, name: str) -> None:
        """Replace the word before the cursor by a name."""
        ui.run_javascript(
            f"{{ const e = getElement({self._element.id}).editor, to = e.state.selection.main.head, "
            f"word = {json.dumps(word)}, from = e.state.sliceDoc(to - word.length, to) === word ? to - word.length : to; "
            f"e.dispatch({{changes: {{from, to, insert: {json.dumps(name)}}}, "
            f"selection: {{anchor: from + {len(name)}}}}}); e.focus(); }}"
        )

    def underline(self, place: tuple[int, int] | None) -> None:
        """Underline a mistake; None removes the underline."""
        text = self.value
        if place is None or not text:
            if self._element.decorations:
                self._element.decorations = []
            return
        start = min(place[0], len(text) - 1)
        end = min(max(place[1], start + 1), len(text))
        self._element.decorations = [{"kind": "mark", "from": start, "to": end, "class": "trouble"}]
