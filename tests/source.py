"""The package's own source as syntax trees, parsed once for all tests of a process that look into it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """Each module of the package, by its path below `headwater/`."""
    package = ROOT / "headwater"
    files = sorted(package.rglob("*.py"))
    return {path.relative_to(package): ast.parse(path.read_text(encoding="utf-8")) for path in files}


@functools.cache
def _calls() -> list[tuple[Path, ast.Call]]:
    return [(path, node) for path, tree in trees().items() for node in ast.walk(tree) if isinstance(node, ast.Call)]


def crash_points() -> Iterator[tuple[Path, str]]:
    """Each name that the package gives to `reach`, or hands on as a `point`, with its module."""
    for path, node in _calls():
        named = [keyword.value for keyword in node.keywords if keyword.arg == "point"]
        if isinstance(node.func, ast.Name) and node.func.id == "reach":
            named += node.args
        for value in named:
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield path, value.value
