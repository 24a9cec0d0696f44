"""The pictures of all operators, as SVG by name."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import tools.timelines

FOLDER = Path(__file__).parents[2] / "docs" / "images" / "operators"
_NOT_PICTURES = ("timeline", "pictures", "__main__")


def pictures() -> dict[str, str]:
    """Draw each operator that has a picture: its SVG by the name of the file."""
    modules = [module.name for module in pkgutil.iter_modules(tools.timelines.__path__)]
    names = sorted(name for name in modules if name not in _NOT_PICTURES)
    return {
        name.replace("_", "-"): importlib.import_module(f"tools.timelines.{name}").picture().svg() for name in names
    }
