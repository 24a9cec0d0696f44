"""The graph as PNG, from the layout of the SVG: drawn by Pillow at a multiple of its size, so that edges are smooth."""

from __future__ import annotations

import io
import unicodedata
from typing import TYPE_CHECKING, Any, Literal

from headwater.errors import ArgumentInvalid
from headwater.runtime.drawing.looks import COLORS, Colors, state_color
from headwater.runtime.drawing.placing import Box, Line
from headwater.runtime.drawing.vector import HEADER, MARGIN, PADDING, plan_of
from headwater.runtime.drawing.wording import plain
from headwater.runtime.status import Graph

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

#: Drawn so many times larger, then made smaller: Pillow's own lines have jagged edges.
SUPERSAMPLED = 2
PIXELS_MAX = 120_000_000
#: Looked for in this order; the last resort is the font that Pillow carries, which knows Latin letters without accents only.
FONTS = (
    "DejaVuSans.ttf",
    "NotoSans-Regular.ttf",
    "Arial.ttf",
    "arial.ttf",
    "Helvetica.ttc",
    "LiberationSans-Regular.ttf",
)
BOLD_FONTS = ("DejaVuSans-Bold.ttf", "NotoSans-Bold.ttf", "Arial Bold.ttf", "arialbd.ttf", "LiberationSans-Bold.ttf")
#: What that last resort has no sign for.
SPELLED = {"→": "->", "…": "...", "·": "-"}


def as_png(graph: Graph, *, scale: float = 2.0, theme: Literal["light", "dark"] = "light") -> bytes:
    """The graph as the bytes of a PNG file; `scale` 2 suits screens with small pixels."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ArgumentInvalid(
            name="format", value="png", expected="svg, or `pip install 'headwater[pictures]'`"
        ) from error
    plan = plan_of(graph)
    width, height = max(plan.width, 260.0) + 2 * MARGIN, plan.height + HEADER + MARGIN + 14
    scale = min(scale, (PIXELS_MAX / SUPERSAMPLED**2 / (width * height)) ** 0.5)
    colors = COLORS[theme]
    large = Image.new("RGB", (round(width * scale * SUPERSAMPLED), round(height * scale * SUPERSAMPLED)), colors.ground)
    pen = _Pen(large, scale * SUPERSAMPLED, colors)
    pen.text(MARGIN, 32 - 15, graph.app, size=19, color=colors.ink, bold=True, width=width - 2 * MARGIN)
    pen.move(MARGIN, HEADER + 6)
    for line in plan.lines:
        pen.line(line)
    for box in plan.boxes:
        pen.box(box)
    small = large.resize((round(width * scale), round(height * scale)), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    small.save(file, "PNG")
    return file.getvalue()


class _Pen:
    """Draws in the units of the layout."""

    # Any: Pillow's own, imported only where something is drawn.
    def __init__(self, image: Any, scale: float, colors: Colors) -> None:
        from PIL import ImageDraw

        self._draw = ImageDraw.Draw(image)
        self._scale = scale
        self._colors = colors
        self._x, self._y = 0.0, 0.0
        self._fonts: dict[tuple[float, bool], tuple[FreeTypeFont, bool]] = {}

    def move(self, x: float, y: float) -> None:
        """What follows is drawn from here."""
        self._x, self._y = x, y

    def _at(self, *points: tuple[float, float]) -> list[tuple[float, float]]:
        return [((self._x + x) * self._scale, (self._y + y) * self._scale) for x, y in points]

    def text(self, x: float, y: float, text: str, *, size: float, color: str, bold: bool = False, width: float) -> None:
        """A line of text with its top left corner at a place, cut to a width."""
        font, complete = self._font(size, bold)
        text = plain(text)
        if not complete:
            for sign, spelled in SPELLED.items():
                text = text.replace(sign, spelled)
            letters = unicodedata.normalize("NFKD", text)
            text = "".join(letter for letter in letters if not unicodedata.combining(letter))
        dots = "…" if complete else "..."
        if font.getlength(text) > width * self._scale:
            while text and font.getlength(text + dots) > width * self._scale:
                text = text[:-1]
            text += dots
        self._draw.text(self._at((x, y))[0], text, fill=color, font=font)

    def text_width(self, text: str, *, size: float, bold: bool = False) -> float:
        return float(self._font(size, bold)[0].getlength(text)) / self._scale

    def _font(self, size: float, bold: bool) -> tuple[FreeTypeFont, bool]:
        if (size, bold) not in self._fonts:
            self._fonts[size, bold] = _font(size * self._scale, bold)
        return self._fonts[size, bold]

    def line(self, line: Line) -> None:
        points = _sampled(line)
        self._draw.line(self._at(*points), fill=self._colors.edge, width=round(1.5 * self._scale), joint="curve")
        x, y = points[0] if line.backwards else points[-1]
        way = -1 if line.backwards else 1
        head = [(x, y), (x - way * 8, y - 3.8), (x - way * 5.6, y), (x - way * 8, y + 3.8)]
        self._draw.polygon(self._at(*head), fill=self._colors.edge)

    def box(self, box: Box) -> None:
        node = box.node
        _, stroke = self._colors.kinds[node.kind]
        self._shape(box)
        x, inner = box.x + PADDING, box.width - 2 * PADDING
        self.text(x, box.y + 8.5, node.kind.upper(), size=8.6, color=stroke, bold=True, width=inner)
        self.text(x, box.y + 22.5, node.name, size=13, color=self._colors.ink, bold=True, width=inner)
        if node.label:
            self.text(x, box.y + 42.5, node.label, size=10.2, color=self._colors.faint, width=inner)
        if node.state:
            color = state_color(self._colors, node.state)
            right = box.x + box.width - PADDING
            wide = self.text_width(node.state, size=10)
            self.text(right - 10 - wide, box.y + 7.5, node.state, size=10, color=color, width=wide + 1)
            [left_top, right_bottom] = self._at((right - 5.6, box.y + 9.8), (right + 1.6, box.y + 17.0))
            self._draw.ellipse([left_top, right_bottom], fill=color)

    def _shape(self, box: Box) -> None:
        fill, stroke = self._colors.kinds[box.node.kind]
        failed = box.node.state == "failed"
        # Any: arguments of Pillow's.
        look: dict[str, Any] = {"fill": fill, "outline": self._colors.states["failed"] if failed else stroke}
        look |= {"width": round((2.2 if failed else 1.5) * self._scale)}
        x, y, right, bottom = box.x, box.y, box.x + box.width, box.y + box.height
        if box.node.kind == "topic":
            self._pipe(x, y, right, bottom, look)
        elif box.node.kind == "sink":
            middle = (y + bottom) / 2
            corners = [(x, y), (right - 12, y), (right, middle), (right - 12, bottom), (x, bottom)]
            self._draw.polygon(self._at(*corners), fill=fill)
            self._draw.line(
                self._at(*corners, (x, y), (right - 12, y)), fill=look["outline"], width=look["width"], joint="curve"
            )
        else:
            radius = (2.5 if box.node.kind == "view" else 12) * self._scale
            self._draw.rounded_rectangle(self._at((x, y), (right, bottom)), radius=radius, **look)
            if box.node.kind == "view":
                for ends in (((x, y + 4), (right, y + 4)), ((x + 6, y + 4), (x + 6, bottom))):
                    self._draw.line(self._at(*ends), fill=look["outline"], width=look["width"])

    # Any: arguments of Pillow's.
    def _pipe(self, x: float, y: float, right: float, bottom: float, look: dict[str, Any]) -> None:
        left_end, right_end = self._at((x, y), (x + 14, bottom)), self._at((right - 14, y), (right, bottom))
        self._draw.ellipse(left_end, **look)
        self._draw.rectangle(self._at((x + 7, y), (right - 7, bottom)), fill=look["fill"])
        self._draw.ellipse(right_end, **look)
        half = look["width"] / 2 / self._scale
        for level in (y + half, bottom - half):
            self._draw.line(self._at((x + 7, level), (right - 7, level)), fill=look["outline"], width=look["width"])


def _sampled(line: Line) -> list[tuple[float, float]]:
    """The curve of a line as many short pieces."""
    points = [line.points[0]]
    for number, (x, y) in enumerate(line.points[1:]):
        from_x, from_y = points[-1]
        if number % 2:
            points.append((x, y))
            continue
        for step in range(1, 25):
            part = step / 24
            points.append(
                (_bezier(from_x, (from_x + x) / 2, (from_x + x) / 2, x, part), _bezier(from_y, from_y, y, y, part))
            )
    return points


def _bezier(start: float, first: float, second: float, stop: float, part: float) -> float:
    rest = 1 - part
    return start * rest**3 + 3 * first * rest**2 * part + 3 * second * rest * part**2 + stop * part**3


def _font(size: float, bold: bool) -> tuple[FreeTypeFont, bool]:
    """A font, and whether it knows more than Latin letters."""
    from PIL import ImageFont

    for name in BOLD_FONTS if bold else FONTS:
        try:
            return ImageFont.truetype(name, size), True
        except OSError:
            continue
    found = ImageFont.load_default(size)
    assert isinstance(found, ImageFont.FreeTypeFont)  # wheels of Pillow have FreeType
    return found, False
