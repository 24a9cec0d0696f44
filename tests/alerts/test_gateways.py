"""Rules on gateways, and their metrics: whether each runs, and what it loses and rejects."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

import headwater
from headwater.alerts import LogMeasures, Rule
from headwater.alerts.measurements import GatewayHealth, Sample, measurements
from headwater.errors import ArgumentInvalid, NotFound
from headwater.gateways import GatewayRunner, StatsD
from headwater.gateways.report import report_of, reports
from headwater.services import Settings
from headwater.services.host import Host
from headwater.services.metrics import Metrics
from tests.alerts.numbers import Numbers
from tests.apps.test_metrics import documented
from tests.conditions import until

LOAD = GatewayHealth(name="statsd-load", state="running", lost=7, rejected=1)
HOOKS = GatewayHealth(name="webhook-in-hooks", state="failed", error="the disk is full")


def told(rule: Rule, *gateways: GatewayHealth) -> list[tuple[str, bool, str]]:
    found = measurements(rule, Sample(Numbers(gated=list(gateways))))
    return [(one.subject, one.is_over, one.message) for one in found]


@pytest.mark.parametrize(
    ("rule", "load", "hooks"),
    [
        (
            Rule(name="down", kind="gateway_down", gateway="*"),
            (False, "Gateway 'statsd-load' is running"),
            (True, "Gateway 'webhook-in-hooks' is failed: the disk is full"),
        ),
        (
            Rule(name="lost", kind="gateway_lost", gateway="*", threshold=5),
            (True, "Gateway 'statsd-load' lost 7 events in the last minute, more than 5 events"),
            (False, "Gateway 'webhook-in-hooks' lost 0 events in the last minute"),
        ),
        (
            Rule(name="no", kind="gateway_rejected", gateway="*"),
            (True, "Gateway 'statsd-load' rejected 1 event in the last minute"),
            (False, "Gateway 'webhook-in-hooks' rejected 0 events in the last minute"),
        ),
    ],
    ids=lambda given: given.kind if isinstance(given, Rule) else "",
)
def test_a_rule_says_what_is_wrong_with_which_gateway(
    rule: Rule, load: tuple[bool, str], hooks: tuple[bool, str]
) -> None:
    assert told(rule, LOAD, HOOKS) == [("statsd-load", *load), ("webhook-in-hooks", *hooks)]


def test_a_rule_on_a_gateway_needs_its_name_and_no_limit_of_a_state() -> None:
    with pytest.raises(ArgumentInvalid, match="the name of a gateway, or a pattern"):
        Rule(name="down", kind="gateway_down")
    with pytest.raises(ArgumentInvalid, match="a gateway runs, or it does not"):
        Rule(name="down", kind="gateway_down", gateway="*", threshold=1)
    with pytest.raises(NotFound, match="Did you mean 'statsd-load'"):
        told(Rule(name="down", kind="gateway_down", gateway="statsd-lod"), LOAD)


def test_a_log_measures_its_gateways_and_every_metric_is_documented(tmp_path: Path) -> None:
    with headwater.open(tmp_path / "log") as log:
        measures, runner = LogMeasures(log), GatewayRunner(log, StatsD(port=0))
        runner.start()
        until(lambda: reports(log))
        [health] = measures.gateways()
        assert (health.state, health.rejected) == ("running", 0)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.sendto(b"nonsense", ("127.0.0.1", int(runner.address.rpartition(":")[2])))
        until(lambda: report_of(log, "statsd-metrics").counters["rejected"])
        runner.stop()
        [health] = measures.gateways()
        assert (health.state, health.rejected) == ("stopped", 1)
        text = Metrics(Host(log=log, settings=Settings())).scrape()
    assert 'headwater_gateway_state{gateway="statsd-metrics",kind="statsd",state="stopped"} 1' in text
    assert 'headwater_gateway_state{gateway="statsd-metrics",kind="statsd",state="running"} 0' in text
    assert 'headwater_gateway_rejected_total{gateway="statsd-metrics",kind="statsd"} 1' in text
    names = set(re.findall(r"^# TYPE (headwater_gateway_\S+ \S+)$", text, flags=re.MULTILINE))
    assert names == {pair for pair in documented() if pair.startswith("headwater_gateway_")}
