"""Draw an app's graph as text and SVG, from one layered layout."""

from headwater.apps.diagram.svg import as_svg
from headwater.apps.diagram.text import as_text

__all__ = ["as_svg", "as_text"]
