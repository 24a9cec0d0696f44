"""The demo in the browser: the company is drawn before there is Spark, lights up query by query, alerts
fire, and at the end every output equals its recomputation."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from company.topics import APP
from playwright.sync_api import Locator, Page, expect

from headwater.spark.java import find_java
from tests.conditions import until
from tests.console.conftest import Visit
from tests.examples.company.outcomes import all_hold

QUERIES = 13
#: They end a hang; thirteen queries start on a machine that may be slow.
STARTED_MILLISECONDS = 600_000
CHECKED_SECONDS = 600


@dataclass(frozen=True, kw_only=True)
class Demo:
    """A `headwater demo` whose Java waits until it is let in."""

    address: str
    process: subprocess.Popen[str]
    gate: Path
    told: Path

    def let_spark_start(self) -> None:
        self.gate.touch()

    def checked(self) -> str:
        """Leave as with Ctrl-C; what the check at the end prints."""
        self.process.send_signal(signal.SIGINT)
        output, _ = self.process.communicate(timeout=CHECKED_SECONDS)
        assert self.process.returncode == 0, self.told.read_text()
        return output


def waiting_java(folder: Path, gate: Path) -> Path:
    """The home of a Java that does nothing before a file is there."""
    real = find_java().home
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    waits = f"while [ ! -e {shlex.quote(str(gate))} ]; do sleep 0.1; done"
    binary.write_text(f'#!/bin/sh\n{waits}\nexec {shlex.quote(str(real / "bin" / "java"))} "$@"\n')
    binary.chmod(0o755)
    shutil.copy(real / "release", folder / "release")
    return folder


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    told, gate = tmp_path / "told", tmp_path / "gate"
    environment = {**os.environ, "JAVA_HOME": str(waiting_java(tmp_path / "java", gate))}
    words = ["--check", "--seconds", "3600", "--port", "0", "--no-open", "--json", "--dir", str(tmp_path / "demo")]
    command = [str(Path(sys.executable).with_name("headwater")), "demo", *words]
    with (
        told.open("w") as file,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=file, env=environment, cwd=tmp_path, text=True
        ) as process,
    ):
        try:
            match = until(
                lambda: re.search(r"open (http://[^/]+)/console", told.read_text()), "the address is told", process
            )
            yield Demo(address=match[1], process=process, gate=gate, told=told)
        finally:
            gate.touch()
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.wait(CHECKED_SECONDS)


def node(page: Page, query: str) -> Locator:
    return page.locator(f'.node[data-id="query:{APP}/{query}"]')


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_company_is_drawn_before_spark_lights_up_and_tells_of_trouble(demo: Demo, visit: Visit) -> None:
    visitor = visit(demo.address)
    visitor.page.emulate_media(reduced_motion="reduce")  # minutes of moving dots would take their time from Spark
    page = visitor.open("/topology")
    expect(page.locator(".node.query")).to_have_count(QUERIES)
    expect(page.locator(".node.query.off")).to_have_count(QUERIES - 1)  # dashed
    expect(node(page, "live_sessions")).to_have_class(re.compile(r"\bstarting\b"))  # the first is at it
    assert "Spark is up" not in demo.told.read_text()

    demo.let_spark_start()
    for query in ("live_sessions", "spending", "fraud_alerts"):  # the first, one in the middle, and the last
        expect(node(page, query)).to_have_class(re.compile(r"\bon\b"), timeout=STARTED_MILLISECONDS)
    expect(page.locator(".line:not(.quiet)")).not_to_have_count(0)  # rows run along them
    visitor.picture("demo-topology-light")

    rules = visitor.open("/alerts").get_by_label("Alert rules")
    for rule in ("dead-letters", "query-down", "large-fraud"):  # the last once there are matches to look at
        expect(rules.get_by_role("row", name=re.compile(rule))).to_be_visible(timeout=STARTED_MILLISECONDS)
    expect(rules.get_by_role("row", name=re.compile("dead-letters"))).to_contain_text(
        "firing", timeout=STARTED_MILLISECONDS
    )
    until(lambda: f"all {QUERIES} queries are at work" in demo.told.read_text(), "every query works", demo.process)
    assert all_hold(demo.checked())
