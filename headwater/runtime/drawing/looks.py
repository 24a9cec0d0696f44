"""The colours of a graph, by day and by night; text has a contrast of at least 4.5 to 1 on what lies behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Colors:
    """One palette: the ground, what is written, fill and stroke by kind, and a colour for each state."""

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


def state_color(colors: Colors, state: str) -> str:
    """The colour of a state; one that is not known looks like text."""
    return colors.states.get(state, colors.faint)
