"""Gateways: what runs on a log, what each has taken, rejected and lost, and the kinds there are."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.gateways.kinds import KINDS, gateway_class, settings_of
from headwater.gateways.port import COUNTER_NAMES, Direction
from headwater.gateways.report import GatewayReport, State, remove_report, report_of, reports
from headwater.services.route import Service, route


@dataclass(frozen=True, kw_only=True)
class GatewayStatus:
    """A gateway as its process last reported it. Counters are of the time `at_us`, and count since `started_us`."""

    name: str
    kind: str
    direction: Direction
    topic: str
    address: str
    state: State
    """`failed`: it waits, with exponential back-off, for its address or for the log. `killed`: its process ended without stopping it."""
    received: int = 0
    appended: int = 0
    """Rows in the log; of a gateway out: messages that the receiver has taken."""
    rejected: int = 0
    duplicates: int = 0
    lost: int = 0
    """What is known to be gone."""
    bytes: int = 0
    per_second: dict[str, float] = field(default_factory=dict)
    """The rates of these counters in the last ten seconds, while it runs."""
    restarts: int = 0
    error: str = ""
    """The last error, also after a restart."""
    error_us: int | None = None
    started_us: int = 0
    at_us: int = 0
    """When the report was written; that of a running gateway is two seconds old at most."""
    pid: int | None = None
    """The process that runs it."""
    app: str = ""
    """The app that runs it, or ran it last; empty for `headwater gateway run`."""
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def running(self) -> bool:
        """Whether a process runs it, though it may be waiting for a restart."""
        return self.state in ("running", "failed")


@dataclass(frozen=True, kw_only=True)
class GatewaySetting:
    """One setting of a kind of gateway."""

    name: str
    type: str
    default: str


@dataclass(frozen=True, kw_only=True)
class GatewayKind:
    """A kind of gateway and its settings."""

    kind: str
    direction: Direction
    purpose: str
    settings: list[GatewaySetting]


class Gateways(Service):
    """What can be known of gateways. They belong to the whole log, so only callers who see all of it see them."""

    @route("GET", "/gateways", scope="read:*")
    def list_gateways(self) -> list[GatewayStatus]:
        """List the gateways that run on this log's machine, or ran there, with their counters."""
        return [_status(report) for report in reports(self.log)]

    @route("GET", "/gateways/kinds", scope="read:*")
    def kinds(self) -> list[GatewayKind]:
        """List the kinds of gateways and their settings with the defaults."""
        return described_kinds()

    @route("GET", "/gateways/{name}", scope="read:*")
    def status(self, name: str) -> GatewayStatus:
        """Read the last report of a gateway: its state, counters and last error."""
        return _status(report_of(self.log, name))

    @route("DELETE", "/gateways/{name}", scope="admin:*")
    def forget(self, name: str) -> None:
        """Delete the report of a gateway that no process runs. Its topic stays."""
        remove_report(self.log, name)


def described_kinds() -> list[GatewayKind]:
    """The kinds of gateways that this installation has."""
    found = []
    for kind in KINDS:
        made = gateway_class(kind)
        settings = [
            GatewaySetting(name=name, type=type, default=_text(default))
            for name, (type, default) in settings_of(kind).items()
        ]
        purpose = str(made.__doc__).partition("\n")[0]
        found.append(GatewayKind(kind=kind, direction=made.direction, purpose=purpose, settings=settings))
    return found


def _text(default: object) -> str:
    if isinstance(default, (tuple, list)):
        return ", ".join(map(str, default))
    return "" if default is None else str(default)


def _status(report: GatewayReport) -> GatewayStatus:
    return GatewayStatus(
        name=report.name,
        kind=report.kind,
        direction=report.direction,
        topic=report.topic,
        address=report.address,
        state=report.state,
        **{name: report.counters.get(name, 0) for name in COUNTER_NAMES},
        per_second=dict(report.per_second),
        restarts=report.restarts,
        error=report.error,
        error_us=report.error_us,
        started_us=report.started_us,
        at_us=report.at_us,
        pid=report.pid if report.state in ("running", "failed") else None,
        app=report.app,
        settings=dict(report.settings),
    )
