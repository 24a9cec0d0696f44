"""Headings, cards, tiles, texts and their explanations, in the console's look (`static/console.css` has the classes)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from pathlib import Path

from nicegui import context as page_context
from nicegui import ui

from headwater.console.kit.chart import sparkline

#: The texts of the question marks: a heading, the meaning, then `### The idea` and `### When it is red`.
EXPLANATIONS = Path(__file__).parents[1] / "why"


def block(classes: str) -> ui.element:
    """A box of these classes; used with `with`."""
    return ui.element("div").classes(classes)


def html(markup: str) -> ui.html:
    """HTML of our own: what comes from elsewhere is escaped before."""
    return ui.html(markup, sanitize=False)


def sentence(text: str) -> str:
    """A sentence as HTML, in which names between backticks stand out.

    >>> sentence("keyed by `customer & co`")
    'keyed by <code>customer &amp; co</code>'
    """
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def heading(title: str, *, under: str = "", why: str = "") -> ui.element:
    """The head of a page; `under` is a sentence. Elements made inside `with` stand at its right: buttons and switches."""
    with block("hw-head"):
        with block("texts"):
            with block("row-flex"):
                html(f"<h1>{escape(title)}</h1>")
                if why:
                    why_button(why)
            if under:
                html(sentence(under)).classes("sub")
        return block("row-flex")


def subtitle(text: str, *, level: int = 2) -> ui.html:
    """The heading of a part of a page."""
    return html(f"<h{level}>{escape(text)}</h{level}>")


def card(title: str = "", *, why: str = "", flush: bool = False, classes: str = "") -> ui.element:
    """A surface with a title; `flush` for one that holds a table from edge to edge."""
    made = block(f"card{' flush' if flush else ''} {classes}")
    if title:
        with made, block("card-head"):
            subtitle(title)
            if why:
                why_button(why)
    return made


class Stat:
    """A tile with a number that changes; tones are "", "good", "warn" and "bad"."""

    def __init__(self, label: str, *, unit: str = "", href: str = "", why: str = "") -> None:
        self._unit = unit
        self._box = block("stat").props(f'role="group" aria-label="{escape(label)}"')
        with self._box:
            self._cover = html("").classes("no-box") if href else None
            with block("label"):
                ui.label(label)
                if why:
                    why_button(why)
            self._value = html("").classes("value")
            self._foot = ui.label("").classes("foot")
            self._spark = html("").classes("spark")
        self._label = label
        self._link_to(href)

    def _link_to(self, href: str) -> None:
        if self._cover is not None and href:
            label = f"{escape(self._label)}: details"
            self._cover.set_content(f'<a class="cover" href="{escape(href)}" aria-label="{label}"></a>')

    def set(
        self,
        value: str,
        *,
        foot: str = "",
        tone: str = "",
        line: Sequence[float] = (),
        unit: str | None = None,
        href: str = "",
    ) -> None:
        """Show a number; `href` is where the tile leads from now on, if that changes."""
        self._link_to(href)
        unit = self._unit if unit is None else unit
        self._value.set_content(escape(value) + (f'<span class="unit">{escape(unit)}</span>' if unit else ""))
        self._foot.set_text(foot)
        self._box.classes(remove="tone-good tone-warn tone-bad", add=f"tone-{tone}" if tone else "")
        self._spark.set_content(sparkline(line, width=64, height=18) if len(line) > 1 else "")


def pill(text: str, tone: str = "") -> ui.html:
    """A small mark; `tone` is "", "good", "warn", "bad", "info" or "accent"."""
    return html(f'<span class="pill {tone}">{escape(text)}</span>')


def note(text: str, tone: str = "info") -> ui.element:
    """A sentence in a coloured box."""
    made = block(f"note {tone}")
    with made:
        ui.label(text).classes("grow wrap-anywhere")
    return made


def empty(title: str, hint: str = "", *, icon: str = "inbox", command: str = "") -> ui.element:
    """What a page shows where there is nothing yet, with what to do about it."""
    made = block("empty")
    with made:
        ui.icon(icon).props('aria-hidden="true"')
        subtitle(title)
        if hint:
            ui.label(hint)
        if command:
            html(f"<code>{escape(command)}</code>")
    return made


def tabs(options: dict[str, str], *, current: str) -> ui.html:
    """Links that look like tabs: label → address. The address says which tab is open, so that each can be bookmarked."""
    links = "".join(
        f'<a href="{escape(address)}"{" class=on aria-current=page" if label == current else ""}>{escape(label)}</a>'
        for label, address in options.items()
    )
    return html(f'<div class="tabs" role="navigation">{links}</div>')


def code(text: str, *, label: str = "") -> ui.html:
    """A text in a fixed font."""
    return html(f'<pre class="code"{_name(label)}>{escape(text)}</pre>')


def json_code(markup: str, *, label: str) -> ui.html:
    """HTML of our own in a fixed font: coloured JSON, or a text that is escaped."""
    return html(f'<pre class="code json"{_name(label)}>{markup}</pre>')


def _name(label: str) -> str:
    return f' tabindex="0" aria-label="{escape(label)}"' if label else ""


def facts(values: Iterable[tuple[str, str]]) -> ui.html:
    """Names and values in two columns."""
    return html(facts_markup(values))


def facts_markup(values: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in values)
    return f'<dl class="facts">{rows}</dl>'


def meter(share: float, *, decimals: int = 0) -> str:
    """The HTML of a bar that is filled by this share.

    >>> meter(0.5)
    '<div class="meter"><i style="width: 50%"></i></div>'
    """
    return f'<div class="meter"><i style="width: {share * 100:.{decimals}f}%"></i></div>'


# -- explanations -----------------------------------------------------------------------------------------------------


@cache
def explanation(name: str) -> str:
    return (EXPLANATIONS / f"{name}.md").read_text(encoding="utf-8")


class WhyPanel:
    """The panel of a page with the explanation of a number; hidden until the user presses a question mark."""

    def __init__(self) -> None:
        self._box = ui.element("aside").classes("why-panel").props('aria-label="Why" role="dialog" tabindex="-1"')
        self._box.set_visibility(False)
        self._box.on("keydown.escape", self.close)
        with self._box:
            with block("row-flex between"):
                ui.label("Why").classes("quiet small")
                closing = ui.button(icon="close", on_click=self.close).props('flat aria-label="Close"')
                closing.classes("btn ghost icon")
            self._text = ui.markdown("")
        client = page_context.client
        _why_panels[client.id] = self
        client.on_delete(lambda: _why_panels.pop(client.id, None))

    def show(self, name: str) -> None:
        self._text.set_content(explanation(name))
        self._box.set_visibility(True)
        self._box.run_method("focus")

    def close(self) -> None:
        self._box.set_visibility(False)


#: By the id of the client.
_why_panels: dict[str, WhyPanel] = {}


def why_button(name: str) -> ui.element:
    """A question mark that opens an explanation."""
    title = explanation(name).splitlines()[0].lstrip("# ")
    client = page_context.client
    made = ui.element("button").classes("why-button why").props(f'type="button" aria-label="Why: {title}"')
    with made:
        ui.label("?")
    made.on("click", lambda: _why_panels[client.id].show(name))
    return made
