"""The source of the package, for tests that check it."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "headwater"


@functools.cache
def modules() -> dict[Path, str]:
    """The text of each module of the package, by its path below `headwater/`."""
    return {path.relative_to(PACKAGE): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


@functools.cache
def crash_points() -> list[tuple[Path, str]]:
    """Each crash point that the package passes to `reach`, or as an argument `point`, with its module."""
    found: list[tuple[Path, str]] = []
    for path, text in modules().items():
        if "reach(" not in text and "point=" not in text:  # parsing all modules takes seconds
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call):
                continue
            named = [keyword.value for keyword in node.keywords if keyword.arg == "point"]
            if isinstance(node.func, ast.Name) and node.func.id == "reach":
                named += node.args
            found += [
                (path, one.value) for one in named if isinstance(one, ast.Constant) and isinstance(one.value, str)
            ]
    return found
