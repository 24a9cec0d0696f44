"""One gateway: its state and address, its counters over time, its last error and its settings."""

from __future__ import annotations

from html import escape

from headwater.console.context import Visit, context
from headwater.console.gateways.display import TONES, appended_name, runs
from headwater.console.kit.chart import LineChart
from headwater.console.kit.layout import Stat, block, card, facts_markup, heading, html, sentence
from headwater.console.kit.live import LivePage, read
from headwater.console.kit.words import ago, count, counted, short, size
from headwater.console.pages import path_to, screen
from headwater.services.gateways import GatewayStatus


@screen("/gateways/{name}", under="/gateways")
async def gateway(visit: Visit, name: str) -> None:
    first = await read(lambda: visit.services.gateways.status(name))  # one that is not there is an error instead
    GatewayPage(visit, first).start()


class GatewayPage(LivePage[GatewayStatus]):
    """The page of a gateway."""

    def __init__(self, visit: Visit, first: GatewayStatus) -> None:
        self._visit, self._name = visit, first.name
        with heading(first.name, under=f"{first.kind}: events {first.direction}"):
            self._state = html("")
        self._notes = html("")
        with block("grid tiles"):
            self._rate = Stat("Receives", unit="per second")
            self._received = Stat("Received")
            self._appended = Stat(appended_name(first))
            self._rejected = Stat("Rejected", why="gateway_loss")
            self._lost = Stat("Lost", why="gateway_loss")
        with block("grid"):
            with card("Per second"):
                self._work = LineChart(
                    label="Received and appended per second over time", dark=visit.dark, height=200, cuts_peaks=True
                )
            with card("Rejected, duplicates and lost per second", why="gateway_loss"):
                self._losses = LineChart(
                    label="Rejected, duplicates and lost per second over time", dark=visit.dark, height=200
                )
        with block("grid"):
            with card("The gateway"):
                self._facts = html("")
                link = f'<a href="{path_to("topics", first.topic)}">Open topic {escape(first.topic)}</a>'
                html(link)
            with card("Settings"):
                html(facts_markup((name, value or "–") for name, value in first.settings.items()))

    def load(self) -> GatewayStatus:
        return self._visit.services.gateways.status(self._name)

    def show(self, content: GatewayStatus) -> None:
        self._state.set_content(f'<span class="pill {TONES[content.state]}">{escape(content.state)}</span>')
        self._notes.set_content(_notes(content))
        history = context().history
        self._rate.set(
            short(content.per_second.get("received", 0.0)) if content.running else "–",
            foot=runs(content),
            line=history.values("gateway", self._name, "received"),
        )
        self._received.set(count(content.received), foot=f"started {ago(content.started_us)}")
        self._appended.set(count(content.appended), foot="rows" if content.direction == "in" else "messages")
        self._rejected.set(
            count(content.rejected),
            foot=f"and {counted(content.duplicates, 'duplicate')}",
            tone="warn" if content.rejected else "",
        )
        self._lost.set(count(content.lost), foot="known to be gone", tone="warn" if content.lost else "")
        series = history.series
        names = {"received": "received", "appended": appended_name(content).lower()}
        self._work.set({label: series("gateway", self._name, name) for name, label in names.items()})
        self._losses.set({name: series("gateway", self._name, name) for name in ("rejected", "duplicates", "lost")})
        self._facts.set_content(facts_markup(_facts(content)))


def _notes(status: GatewayStatus) -> str:
    texts = []
    if status.state == "killed":
        texts.append(
            (
                "bad",
                f"Its process ended without stopping it. The counters are those of {ago(status.at_us)}; what it received later is in none.",
            )
        )
    elif status.state == "stopped":
        texts.append(("info", f"No process runs it now. The counters are those of its last run: {ago(status.at_us)}."))
    if status.error:
        told = f"{status.error} ({ago(status.error_us)}, {counted(status.restarts, 'restart')})"
        texts.append(("bad" if status.state == "failed" else "warn", told))
    markup = "".join(
        f'<div class="note {tone}"><div class="grow wrap-anywhere">{sentence(text)}</div></div>' for tone, text in texts
    )
    return f'<div class="stack tight">{markup}</div>' if markup else ""


def _facts(status: GatewayStatus) -> list[tuple[str, str]]:
    return [
        ("Address", status.address or "–"),
        ("Topic", status.topic),
        ("Run by", runs(status) + (f", process {status.pid}" if status.pid is not None else "")),
        ("Bytes", size(status.bytes)),
        ("Started", ago(status.started_us)),
        ("Reported", ago(status.at_us)),
        ("Restarts", count(status.restarts)),
    ]
