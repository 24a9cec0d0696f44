"""Draw a graph as SVG: one file that loads nothing else, in light and dark colours, with a description to read aloud.

Each kind has a shape: a topic is a pipe, a query a rounded box, a view a table, a sink an arrow's head. Colour says the
same again, and the state of a query is a dot and a word. Text has a contrast of at least 4.5 to 1 to its background.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from rich.cells import cell_len

from headwater.apps.diagram.layout import Box, Layout, Point, Spacing, arrange
from headwater.apps.diagram.text import cut_cells, kind_and_state, nodes_of, plain, summary
from headwater.apps.status import Graph, Node

MARGIN = 28.0
HEADER = 46.0
NAME_SIZE, SMALL_SIZE = 13.5, 10.5
CELL, SMALL_CELL = 8.0, 6.1
PADDING = 16.0
WIDTH_MIN, CELLS_MAX = 132.0, 34
SPACING = Spacing(gap=22.0, channel=74.0, line_height=14.0, port_share=0.16)
FONT = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif"


@dataclass(frozen=True, kw_only=True)
class Colors:
    """A palette: background, text, fill and stroke by kind, and a colour for each state."""

    ground: str
    ink: str
    faint: str
    edge: str
    kinds: Mapping[str, tuple[str, str]]
    states: Mapping[str, str]


_LIGHT = Colors(
    ground="#ffffff",
    ink="#16202c",
    faint="#55606e",
    edge="#8a96a5",
    kinds={
        "topic": ("#e6f1fb", "#1d64ab"),
        "query": ("#f3effc", "#6a48b8"),
        "view": ("#e6f6ed", "#16774a"),
        "sink": ("#fdf0e1", "#a3560b"),
        "capture": ("#e9f3f2", "#0b7a75"),
        "gateway": ("#fbeaf2", "#a8316a"),
    },
    states={
        "waiting": "#55606e",
        "starting": "#0b6f8a",
        "running": "#16774a",
        "caught up": "#16774a",
        "restarting": "#925f00",
        "stopped": "#55606e",
        "failed": "#c02626",
    },
)
_DARK = Colors(
    ground="#10161e",
    ink="#eef2f7",
    faint="#a5b1c0",
    edge="#67748a",
    kinds={
        "topic": ("#122a42", "#6fb1f0"),
        "query": ("#251d40", "#b59cf2"),
        "view": ("#0f3022", "#5fd09a"),
        "sink": ("#3a2610", "#f0ab5e"),
        "capture": ("#0f2b2a", "#3fbfb5"),
        "gateway": ("#3a1528", "#f08dbb"),
    },
    states={
        "waiting": "#a5b1c0",
        "starting": "#5cc8e4",
        "running": "#5fd09a",
        "caught up": "#5fd09a",
        "restarting": "#f0c05e",
        "stopped": "#a5b1c0",
        "failed": "#ff8080",
    },
)
COLORS: Mapping[str, Colors] = {"light": _LIGHT, "dark": _DARK}


def size(node: Node) -> tuple[float, float]:
    """Return the width and height of a node's box."""
    name = cell_len(cut_cells(node.name, CELLS_MAX)) * CELL
    label = cell_len(cut_cells(node.label, CELLS_MAX + 8)) * SMALL_CELL
    head = cell_len(kind_and_state(node)) * SMALL_CELL * 1.15 + 12
    around = 2 * PADDING + (8 if node.kind == "sink" else 0)  # an arrow's tip has no room for text
    return max(WIDTH_MIN, max(name, label, head) + around), 64.0 if node.label else 48.0


def layout_of(graph: Graph) -> Layout:
    """Lay out the graph."""
    return arrange(tuple((name, *size(node)) for name, node in nodes_of(graph).items()), graph.edges, SPACING)


def as_svg(graph: Graph) -> str:
    """Draw the graph as the text of an SVG file.

    >>> as_svg(Graph(app="fraud", nodes=(Node(name="<b>", kind="topic"),), edges=())).count("&lt;b&gt;") >= 1
    True
    """
    layout = layout_of(graph)
    nodes = nodes_of(graph)
    width, height = max(layout.width, 260.0) + 2 * MARGIN, layout.height + HEADER + MARGIN + 14
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-labelledby="title desc" font-family={quoteattr(FONT)}>',
        f'<title id="title">{_text(graph.app)}</title>',
        f'<desc id="desc">{_text(summary(graph))}</desc>',
        f"<style>{_style()}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7.4" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path class="head" d="M0.5 0.8 7.4 4 0.5 7.2 2.4 4z"/></marker></defs>',
        f'<rect class="ground" width="{width:.0f}" height="{height:.0f}"/>',
        f'<text class="app" x="{MARGIN:.0f}" y="32">{_text(cut_cells(graph.app, 60))}</text>',
        f'<g transform="translate({MARGIN:.0f} {HEADER + 6:.0f})">',
        *(_line(edge, points) for edge, points in layout.lines.items()),
        *(_box(nodes[name], box) for name, box in layout.boxes.items()),
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _text(text: str) -> str:
    return escape(plain(text))


def _line(edge: tuple[str, str], points: Sequence[Point]) -> str:
    title = f"<title>{_text(edge[0])} → {_text(edge[1])}</title>"
    return f'<path class="edge" d="{curve(points)}" marker-end="url(#head)">{title}</path>'


def curve(points: Sequence[Point]) -> str:
    """Return the `d` of a path: curves through the channels, straight through the columns."""
    (x, y), *rest = points
    parts = [f"M{x:.1f} {y:.1f}"]
    for number, (following_x, following_y) in enumerate(rest):
        if number % 2:
            parts.append(f"L{following_x:.1f} {following_y:.1f}")
        else:
            bend = (following_x - x) / 2
            parts.append(
                f"C{x + bend:.1f} {y:.1f} {following_x - bend:.1f} {following_y:.1f} {following_x:.1f} {following_y:.1f}"
            )
        x, y = following_x, following_y
    return " ".join(parts)


def _box(node: Node, box: Box) -> str:
    x, y = box.x + PADDING, box.y
    state = f' data-state="{node.state.replace(" ", "-")}"' if node.state else ""
    lines = [
        f'<g class="{node.kind}"{state}><title>{_text(_title(node))}</title>',
        *_shape(node, box),
        f'<text class="kind" x="{x:.1f}" y="{y + 17:.1f}">{node.kind.upper()}</text>',
        f'<text class="name" x="{x:.1f}" y="{y + 35:.1f}">{_text(cut_cells(node.name, CELLS_MAX))}</text>',
    ]
    if node.label:
        label = _text(cut_cells(node.label, CELLS_MAX + 8))
        lines.append(f'<text class="label" x="{x:.1f}" y="{y + 52:.1f}">{label}</text>')
    if node.state:
        right = box.x + box.width - PADDING
        lines.append(f'<text class="state" x="{right - 10:.1f}" y="{y + 17:.1f}" text-anchor="end">{node.state}</text>')
        lines.append(f'<circle class="dot" cx="{right - 2:.1f}" cy="{y + 13.4:.1f}" r="3.6"/>')
    return "".join([*lines, "</g>"])


def _shape(node: Node, box: Box) -> list[str]:
    x, y, width, height = box.x, box.y, box.width, box.height
    right, bottom = x + width, y + height
    if node.kind == "topic":  # a pipe, seen a little from its end
        body = f"M{x + 7:.1f} {y:.1f}H{right - 7:.1f}a7 {height / 2:.1f} 0 0 1 0 {height:.1f}H{x + 7:.1f}"
        body += f"a7 {height / 2:.1f} 0 0 1 0 {-height:.1f}z"
        end = f"M{right - 7:.1f} {y:.1f}a7 {height / 2:.1f} 0 0 0 0 {height:.1f}"
        return [f'<path class="shape" d="{body}"/>', f'<path class="detail" d="{end}"/>']
    if node.kind == "view":  # a table: a thick edge at its head, square corners
        shape = f'<rect class="shape" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2.5"/>'
        return [
            shape,
            f'<path class="detail" d="M{x:.1f} {y + 4:.1f}H{right:.1f}M{x + 6:.1f} {y + 4:.1f}V{bottom:.1f}"/>',
        ]
    if node.kind == "sink":  # the head of an arrow: out of here
        tip = f"M{x + 4:.1f} {y:.1f}H{right - 12:.1f}L{right:.1f} {y + height / 2:.1f}L{right - 12:.1f} {bottom:.1f}"
        return [f'<path class="shape" d="{tip}H{x + 4:.1f}q-4 0 -4 -4V{y + 4:.1f}q0 -4 4 -4z"/>']
    return [f'<rect class="shape" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="12"/>']


def _title(node: Node) -> str:
    return " · ".join(part for part in (f"{node.kind} {node.name}", node.label, node.state or "") if part)


def _style() -> str:
    light, dark = COLORS["light"], COLORS["dark"]
    return (
        ".shape,.detail,.edge{stroke-width:1.5;stroke-linejoin:round}.detail,.edge{fill:none}"
        f".app{{font-size:19px;font-weight:600;letter-spacing:-.2px}}.name{{font-size:{NAME_SIZE}px;font-weight:600}}"
        f".kind,.state,.label{{font-size:{SMALL_SIZE}px}}.kind{{font-weight:600;letter-spacing:.8px;font-size:9px}}"
        + _rules(light)
        + "@media (prefers-color-scheme:dark){"
        + _rules(dark)
        + "}"
    )


def _rules(colors: Colors) -> str:
    rules = [
        f".ground{{fill:{colors.ground}}}.app,.name{{fill:{colors.ink}}}.label,.state{{fill:{colors.faint}}}",
        f".edge{{stroke:{colors.edge}}}.head{{fill:{colors.edge}}}.dot{{fill:{colors.faint}}}",
    ]
    for kind, (fill, stroke) in colors.kinds.items():
        rules.append(f".{kind} .shape{{fill:{fill};stroke:{stroke}}}.{kind} .detail{{stroke:{stroke}}}")
        rules.append(f".{kind} .kind{{fill:{stroke}}}")
    for state, color in colors.states.items():
        name = state.replace(" ", "-")
        rules.append(f"[data-state={name}] .dot{{fill:{color}}}[data-state={name}] .state{{fill:{color}}}")
    rules.append(f"[data-state=failed] .shape{{stroke:{colors.states['failed']};stroke-width:2.2}}")
    return "".join(rules)
