"""Gateways that an app declares: its process runs them, its queries read their topics, and its picture shows them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import headwater as hw
from headwater.apps.check import problems
from headwater.apps.diagram import as_svg, as_text
from headwater.apps.diagram.text import summary
from headwater.apps.graph import picture
from headwater.apps.home import DeclaredQuery
from headwater.apps.runner import Runner
from headwater.errors import ArgumentInvalid
from headwater.gateways import StatsD, WebhookIn
from headwater.gateways.report import report_of
from headwater.testing import AppTest
from tests.apps.fixtures import PlainRunner, Row, supervised
from tests.conditions import until

COLUMNS = {"loads": {"name": "string", "value": "float64"}}


def app_of(folder: Path, port: int = 0) -> hw.App:
    app = hw.App("load", log=folder / "log", home=folder / "home")
    metrics = app.gateway(StatsD(port=port, topic="metrics"))

    @app.view(key="name", inputs={"rows": metrics})
    def loads(rows: list[Row]) -> list[Row]:
        return [{"name": row["name"], "value": row["value"]} for row in rows]

    return app


def test_what_a_gateway_receives_reaches_the_queries_of_the_app(tmp_path: Path) -> None:
    app = app_of(tmp_path)
    with supervised(PlainRunner(app, columns=COLUMNS, serve=False)) as runner:
        [gateway] = runner.gateways
        until(lambda: gateway.address)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.sendto(b"cpu:0.5|g", ("127.0.0.1", int(gateway.address.rpartition(":")[2])))
        until(lambda: "loads" in runner.keeper.views and runner.keeper.views["loads"].rows(), "the view has the row")
        report = report_of(runner.log, "statsd-metrics")
        assert (report.state, report.app) == ("running", "load")
    with hw.open(tmp_path / "log") as log:
        assert report_of(log, "statsd-metrics").state == "stopped"


def test_an_address_in_use_does_not_stop_an_app_and_is_taken_when_it_is_free(tmp_path: Path) -> None:
    taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    taken.bind(("127.0.0.1", 0))
    with supervised(PlainRunner(app_of(tmp_path, taken.getsockname()[1]), columns=COLUMNS, serve=False)) as runner:
        [gateway] = runner.gateways
        until(lambda: gateway.status().state == "failed")
        taken.close()
        until(lambda: gateway.status().state == "running")


def test_wrong_settings_end_the_start_of_an_app(tmp_path: Path) -> None:
    app = hw.App("hooks", log=tmp_path / "log")
    app.gateway(WebhookIn(port=0))
    with pytest.raises(ArgumentInvalid, match="secret"), supervised(Runner(app, serve=False)):
        pass


def test_a_gateway_is_declared_once(tmp_path: Path) -> None:
    app = app_of(tmp_path)
    with pytest.raises(ArgumentInvalid, match="another kind or topic"):
        app.gateway(StatsD(port=1))


def test_a_check_and_a_test_of_an_app_open_no_port(tmp_path: Path) -> None:
    taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    taken.bind(("127.0.0.1", 0))
    app = app_of(tmp_path, taken.getsockname()[1])
    assert problems(app, start_spark=None) == []
    app.queries.clear()
    with AppTest(app) as test:
        test.feed("metrics", [{"at": test.now, "name": "cpu", "kind": "gauge", "sample_rate": 1.0, "relative": False}])
        assert len(test.rows("metrics")) == 1
    taken.close()


def test_a_gateway_is_drawn_beside_its_topic(tmp_path: Path) -> None:
    app = app_of(tmp_path)
    drawn = picture(
        "load",
        [DeclaredQuery.of(one) for one in app.queries],
        labels={},
        gateways=[*app.gateways, StatsD(topic="else")],
    )
    assert ("gateway statsd-metrics", "metrics") in drawn.edges
    assert "gateway statsd-else" not in {node.name for node in drawn.nodes}
    assert "1 gateway" in summary(drawn)
    assert "gateway statsd-metrics" in as_text(drawn)
    assert "gateway statsd-metrics" in as_svg(drawn)
