"""An app's graph as text, SVG and PNG: one layered layout, three hands that draw it."""

from headwater.runtime.drawing.picture import as_png
from headwater.runtime.drawing.text import as_text
from headwater.runtime.drawing.vector import as_svg

__all__ = ["as_png", "as_svg", "as_text"]
