"""Gateways: the state, rate and losses of each, in one row."""

from __future__ import annotations

from headwater.console.context import Visit, context
from headwater.console.gateways.display import TONES, badness, runs
from headwater.console.kit.chart import sparkline
from headwater.console.kit.list_page import ListPage
from headwater.console.kit.table import Column, Row, drawn, link, mark, toned
from headwater.console.kit.words import ago, count, short
from headwater.console.pages import path_to, screen
from headwater.services.gateways import GatewayStatus


@screen("/gateways", title="Gateways", group="Data", icon="settings_input_antenna", key="w", order=26)
def gateways(visit: Visit) -> None:
    visit.caller.require("read", "*")
    GatewayList(visit).start()


class GatewayList(ListPage[GatewayStatus]):
    """The list of gateways; those that need attention come first."""

    title = "Gateways"
    under = "Events in and out without a client library, and what was lost on the way."
    why = "gateway_loss"
    columns = (
        Column(name="name", label="Gateway"),
        Column(name="state", label="State"),
        Column(name="runs", label="Run by"),
        Column(name="topic", label="Topic"),
        Column(name="history", label="Rate, last minutes", width="120px"),
        Column(name="rate", label="per second", align="right"),
        Column(name="received", label="Received", align="right"),
        Column(name="appended", label="Appended", align="right"),
        Column(name="rejected", label="Rejected", align="right"),
        Column(name="lost", label="Lost", align="right"),
        Column(name="reported", label="Reported", align="right"),
    )
    none = "No gateway fits."
    nothing = {
        "title": "No gateway has run on this machine",
        "hint": "A gateway brings events in or out without a client library: StatsD, webhooks, syslog, files and more.",
        "icon": "settings_input_antenna",
        "command": "headwater gateway run statsd topic=metrics",
    }
    sort_keys = {
        "name": lambda one: one.name,
        "state": badness,
        "topic": lambda one: one.topic,
        "rate": lambda one: one.per_second.get("received", 0.0),
        "received": lambda one: one.received,
        "appended": lambda one: one.appended,
        "rejected": lambda one: one.rejected,
        "lost": lambda one: one.lost,
        "reported": lambda one: one.at_us,
    }
    ascending = ("name", "state", "topic")
    sort = "state"

    def items(self) -> list[GatewayStatus]:
        context().history.wait()
        return context().history.gateways

    def text(self, item: GatewayStatus) -> str:
        return "\n".join((item.name, item.topic, item.address))

    def row(self, item: GatewayStatus) -> Row:
        cells = [
            link(item.name, path_to("gateways", item.name), under=item.address),
            mark(item.state, TONES[item.state]),
            runs(item) if item.running else toned(runs(item), "quiet"),
            link(item.topic, path_to("topics", item.topic)),
            drawn(sparkline(context().history.values("gateway", item.name, "received"))),
            short(item.per_second.get("received", 0.0)) if item.running else "–",
            count(item.received),
            count(item.appended),
            toned(count(item.rejected), "warn") if item.rejected else "–",
            toned(count(item.lost), "warn") if item.lost else "–",
            toned(ago(item.at_us), "quiet"),
        ]
        return Row(cells, key=item.name)
