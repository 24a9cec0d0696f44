"""A tile: one number, what it is, and where to look further."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from nicegui import ui

from headwater.console.kit import why as explained
from headwater.console.kit.sparkline import sparkline


class Stat:
    """A number that changes; tones are "", "good", "warn" and "bad"."""

    def __init__(self, label: str, *, unit: str = "", href: str = "", why: str = "") -> None:
        self._unit = unit
        self._box = ui.element("div").classes("stat").props(f'role="group" aria-label="{escape(label)}"')
        with self._box:
            if href:
                cover = f'<a class="cover" href="{escape(href)}" aria-label="{escape(label)}: details"></a>'
                ui.html(cover, sanitize=False).classes("no-box")
            with ui.element("div").classes("label"):
                ui.label(label)
                if why:
                    explained.button(why)
            self._value = ui.html("", sanitize=False).classes("value")
            self._foot = ui.label("").classes("foot")
            self._spark = ui.html("", sanitize=False).classes("spark")

    def set(
        self, value: str, *, foot: str = "", tone: str = "", line: Sequence[float] = (), unit: str | None = None
    ) -> None:
        told = self._unit if unit is None else unit
        after = f'<span class="unit">{escape(told)}</span>' if told else ""
        self._value.set_content(f"{escape(value)}{after}")
        self._foot.set_text(foot)
        self._box.classes(remove="tone-good tone-warn tone-bad", add=f"tone-{tone}" if tone else "")
        self._spark.set_content(sparkline(line, width=64, height=18) if len(line) > 1 else "")
