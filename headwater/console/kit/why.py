"""A question mark beside a number, and the panel that it opens: what the number means, the idea behind it, what to do.

The texts are the files of `why/`: a heading, the meaning, then `### The idea` and `### When it is red`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from nicegui import context as page
from nicegui import ui

FOLDER = Path(__file__).parents[1] / "why"
_panels: dict[str, Panel] = {}


@cache
def text_of(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


class Panel:
    """The panel of one page; hidden until the user presses a question mark."""

    def __init__(self) -> None:
        self._box = ui.element("aside").classes("why-panel").props('aria-label="Why" role="dialog" tabindex="-1"')
        self._box.set_visibility(False)
        self._box.on("keydown.escape", self.close)
        with self._box:
            with ui.element("div").classes("row-flex between"):
                ui.label("Why").classes("quiet small")
                closing = ui.button(icon="close", on_click=self.close).props('flat aria-label="Close"')
                closing.classes("btn ghost icon")
            self._text = ui.markdown("")

    def show(self, name: str) -> None:
        self._text.set_content(text_of(name))
        self._box.set_visibility(True)
        self._box.run_method("focus")

    def close(self) -> None:
        self._box.set_visibility(False)


def panel() -> None:
    """Make the panel of this page."""
    client = page.client
    _panels[client.id] = Panel()
    client.on_delete(lambda: _panels.pop(client.id, None))


def button(name: str) -> ui.element:
    """A question mark that opens the text of this name."""
    title = text_of(name).splitlines()[0].lstrip("# ")
    client = page.client
    made = ui.element("button").classes("why-button why").props(f'type="button" aria-label="Why: {title}"')
    with made:
        ui.label("?")
    made.on("click", lambda: _panels[client.id].show(name))
    return made
