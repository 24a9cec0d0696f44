"""What `make chaos` does to an app on three Kafka brokers: at night all of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.kafka import EVENTS
from tests.kafka_server import jars_or_skip

ROOT = Path(__file__).parents[2]


def test_four_leaders_and_the_app_are_killed() -> None:
    assert (EVENTS.count("kill leader"), EVENTS.count("kill app")) == (4, 1)


@pytest.mark.long
@pytest.mark.process
@pytest.mark.kafka
@pytest.mark.timeout(1800)
def test_an_app_on_brokers_whose_leaders_are_killed_loses_nothing_and_doubles_nothing() -> None:
    jars_or_skip()
    words = [sys.executable, "-m", "tests.chaos.run", "--what", "kafka", "--quiet"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost 0, doubled 0" in done.stdout
    assert "ended by itself 0 times" in done.stdout
