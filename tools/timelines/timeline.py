"""A timeline as a value, and as an SVG for light and dark screens."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Literal

WIDTH = 920
LEFT = 150
RIGHT = 30
TOP = 68
ROW = 30
LANE_GAP = 18
SPAN = 22
STYLE = """
    .ground{fill:#ffffff} .ink{fill:#16202c} .soft{fill:#55606e;font-size:12px} .axis{stroke:#8a96a5;stroke-width:1}
    .event{fill:#1d64ab} .late{fill:none;stroke:#c02626;stroke-width:2} .lateink{fill:#c02626;font-size:12px}
    .closed{fill:#e6f6ed;stroke:#16774a} .open{fill:#e6f1fb;stroke:#1d64ab;stroke-dasharray:4 3}
    .retracted{fill:#fdecec;stroke:#c02626} .spanink{fill:#16202c;font-size:12px} .struck{text-decoration:line-through}
    .mark{stroke:#a3560b;stroke-width:1.5;stroke-dasharray:5 4} .markink{fill:#a3560b;font-size:12px}
    .link{stroke:#6a48b8;stroke-width:1.4;fill:none}
    @media (prefers-color-scheme: dark){
      .ground{fill:#10161e} .ink,.spanink{fill:#eef2f7} .soft{fill:#a5b1c0} .axis{stroke:#67748a} .event{fill:#6fb1f0}
      .late{stroke:#ff8080} .lateink{fill:#ff8080} .closed{fill:#0f3022;stroke:#5fd09a} .open{fill:#122a42;stroke:#6fb1f0}
      .retracted{fill:#3a1717;stroke:#ff8080} .mark{stroke:#f0ab5e} .markink{fill:#f0ab5e} .link{stroke:#b59cf2}
    }
"""
Kind = Literal["closed", "open", "retracted"]


@dataclass(frozen=True)
class Event:
    at: float
    text: str
    late: bool


@dataclass(frozen=True)
class Span:
    start: float
    end: float
    text: str
    kind: Kind


@dataclass
class Lane:
    """One line of the picture: events as dots, spans as bars; bars that overlap are drawn below one another."""

    name: str
    events: list[Event] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    def event(self, at: float, text: str = "", *, late: bool = False) -> Lane:
        """A dot with a short text above it; the dot of a late row is hollow and red."""
        self.events.append(Event(at, text, late))
        return self

    def span(self, start: float, end: float, text: str = "", *, kind: Kind = "closed") -> Lane:
        """A bar from start to end: a final result (`closed`), one that may still change (`open`), or one that was retracted (`retracted`)."""
        self.spans.append(Span(start, end, text, kind))
        return self

    def rows(self) -> list[list[Span]]:
        """The bars in as few rows as they fit into."""
        rows: list[list[Span]] = []
        for span in sorted(self.spans, key=lambda span: (span.start, span.end)):
            for row in rows:
                if row[-1].end <= span.start:
                    row.append(span)
                    break
            else:
                rows.append([span])
        return rows

    @property
    def height(self) -> float:
        return (ROW + 8 if self.events else 0) + len(self.rows()) * (SPAN + 6)


@dataclass
class Timeline:
    """A picture of what happens over event time: lanes from top to bottom, time from left to right."""

    title: str
    until: float
    about: str
    since: float = 0
    step: float = 5
    unit: str = "seconds"
    axis: str = "event time"
    lanes: list[Lane] = field(default_factory=list)
    marks: list[tuple[float, str]] = field(default_factory=list)
    links: list[tuple[tuple[int, float], tuple[int, float]]] = field(default_factory=list)

    def lane(self, name: str) -> Lane:
        """A new line, below the others."""
        lane = Lane(name)
        self.lanes.append(lane)
        return lane

    def mark(self, at: float, text: str) -> None:
        """A dashed line through all lanes, such as a watermark."""
        self.marks.append((at, text))

    def link(self, from_lane: int, from_at: float, to_lane: int, to_at: float) -> None:
        """A line from an event of one lane to an event of another lane that belongs to it."""
        self.links.append(((from_lane, from_at), (to_lane, to_at)))

    def svg(self) -> str:
        tops = self._tops()
        bottom = tops[-1] + self.lanes[-1].height + 8
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 44:g}" role="img" '
            'aria-labelledby="t d" font-family="system-ui, sans-serif" font-size="14">',
            f'  <title id="t">{escape(self.title)}</title>',
            f'  <desc id="d">{escape(self.about)}</desc>',
            f"  <style>{STYLE}  </style>",
            f'  <rect class="ground" width="{WIDTH}" height="{bottom + 44:g}" rx="8"/>',
            f'  <text class="ink" x="16" y="28" font-weight="600">{escape(self.title)}</text>',
            *self._axis(bottom),
            *self._links(tops),
        ]
        for lane, top in zip(self.lanes, tops, strict=True):
            parts += self._lane(lane, top)
        return "\n".join([*parts, *self._marks(bottom), "</svg>"]) + "\n"

    def _tops(self) -> list[float]:
        tops, top = [], float(TOP)
        for lane in self.lanes:
            tops.append(top)
            top += lane.height + LANE_GAP
        return tops

    def _x(self, at: float) -> float:
        share = (at - self.since) / (self.until - self.since)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def _axis(self, bottom: float) -> list[str]:
        parts = [f'  <line class="axis" x1="{LEFT}" y1="{bottom:g}" x2="{WIDTH - RIGHT}" y2="{bottom:g}"/>']
        at = self.since
        while at <= self.until:
            x = self._x(at)
            parts.append(f'  <line class="axis" x1="{x:g}" y1="{bottom:g}" x2="{x:g}" y2="{bottom + 5:g}"/>')
            parts.append(f'  <text class="soft" x="{x:g}" y="{bottom + 20:g}" text-anchor="middle">{at:g}</text>')
            at += self.step
        parts.append(f'  <text class="soft" x="16" y="{bottom + 20:g}">{escape(f"{self.axis}, {self.unit}")}</text>')
        return parts

    def _lane(self, lane: Lane, top: float) -> list[str]:
        middle = top + (ROW if lane.events else SPAN / 2 + 4)
        parts = [f'  <text class="ink" x="16" y="{middle:g}">{escape(lane.name)}</text>']
        for event in lane.events:
            shape, ink = ("late", "lateink") if event.late else ("event", "soft")
            x, y = self._x(event.at), top + ROW - 5
            parts.append(f'  <circle class="{shape}" cx="{x:g}" cy="{y:g}" r="5"/>')
            parts.append(
                f'  <text class="{ink}" x="{x:g}" y="{y - 11:g}" text-anchor="middle">{escape(event.text)}</text>'
            )
        below = top + (ROW + 8 if lane.events else 0)
        for number, row in enumerate(lane.rows()):
            for span in row:
                parts += self._span(span, below + number * (SPAN + 6))
        return parts

    def _span(self, span: Span, y: float) -> list[str]:
        start, end = self._x(max(span.start, self.since)), self._x(min(span.end, self.until))
        struck = " struck" if span.kind == "retracted" else ""
        return [
            f'  <rect class="{span.kind}" x="{start + 1:g}" y="{y:g}" width="{end - start - 2:g}" height="{SPAN}" rx="4"/>',
            f'  <text class="spanink{struck}" x="{(start + end) / 2:g}" y="{y + 15:g}" text-anchor="middle">'
            f"{escape(span.text)}</text>",
        ]

    def _marks(self, bottom: float) -> list[str]:
        parts = []
        for at, text in self.marks:
            x = self._x(at)
            parts.append(f'  <line class="mark" x1="{x:g}" y1="54" x2="{x:g}" y2="{bottom:g}"/>')
            parts.append(f'  <text class="markink" x="{x:g}" y="50" text-anchor="middle">{escape(text)}</text>')
        return parts

    def _links(self, tops: list[float]) -> list[str]:
        parts = []
        for (first, start), (second, end) in self.links:
            y1, y2 = (tops[lane] + ROW - 5 for lane in (first, second))
            x1, x2 = self._x(start), self._x(end)
            parts.append(f'  <line class="link" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>')
        return parts
