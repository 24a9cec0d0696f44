"""Gateways as pages show them: states in colours, and which program runs each."""

from __future__ import annotations

from headwater.services.gateways import GatewayStatus

TONES = {"running": "good", "failed": "warn", "killed": "bad", "stopped": ""}
#: States from the worst to the best.
_WORST_FIRST = ("killed", "failed", "stopped", "running")


def badness(status: GatewayStatus) -> tuple[int, int, str]:
    """The order of gateways, those that need attention first."""
    return _WORST_FIRST.index(status.state), -(status.lost + status.rejected), status.name


def runs(status: GatewayStatus) -> str:
    """Which program runs a gateway.

    >>> runs(GatewayStatus(name="statsd-load", kind="statsd", direction="in", topic="load", address="", state="stopped"))
    'no process'
    """
    if not status.running:
        return "no process"
    return f"app {status.app}" if status.app else "headwater gateway run"


def appended_name(status: GatewayStatus) -> str:
    """What a row that has arrived is called: in the log, or at the receiver."""
    return "Appended" if status.direction == "in" else "Delivered"
