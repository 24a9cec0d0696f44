"""All pictures, by name."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import tools.timelines

FOLDER = Path(__file__).parents[2] / "docs" / "images" / "operators"
_NOT_PICTURES = ("timeline", "drawing", "__main__")


def pictures() -> dict[str, str]:
    """The SVG of each operator that has a picture."""
    names = sorted(one.name for one in pkgutil.iter_modules(tools.timelines.__path__) if one.name not in _NOT_PICTURES)
    return {
        name.replace("_", "-"): importlib.import_module(f"tools.timelines.{name}").picture().svg() for name in names
    }
