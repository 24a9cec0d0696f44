"""Rules on queues: how much waits and for how long, what is delivered again, and whether any worker takes messages."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater
from headwater.alerts import LogMeasures, Rule
from headwater.alerts.measurements import QueueHealth, Sample, measurements
from headwater.clock import ManualClock
from headwater.errors import ArgumentInvalid, NotFound
from headwater.services import Settings
from headwater.services.host import Host
from headwater.services.metrics import Metrics
from tests.alerts.numbers import Numbers

JOBS = QueueHealth(queue="jobs", group="default", depth=12, oldest_seconds=75.0, redeliveries=1, consumers=2)
MAILS = QueueHealth(queue="mails", group="night", depth=1)


def told(rule: Rule, *queues: QueueHealth) -> list[tuple[str, bool, str]]:
    found = measurements(rule, Sample(Numbers(queued=list(queues))))
    return [(one.subject, one.is_over, one.message) for one in found]


@pytest.mark.parametrize(
    ("rule", "jobs", "mails"),
    [
        (
            Rule(name="deep", kind="queue_depth", queue="*", threshold=10),
            (True, "Group 'default' of queue 'jobs' has 12 messages waiting, more than 10 messages"),
            (False, "Group 'night' of queue 'mails' has 1 message waiting"),
        ),
        (
            Rule(name="old", kind="queue_age", queue="*", threshold=60),
            (True, "Group 'default' of queue 'jobs' lets messages wait for 1.2 min, more than 1 min"),
            (False, "Group 'night' of queue 'mails' lets messages wait for 0 s"),
        ),
        (
            Rule(name="again", kind="queue_redeliveries", queue="*"),
            (True, "Group 'default' of queue 'jobs' had 1 redelivery in the last minute"),
            (False, "Group 'night' of queue 'mails' had 0 redeliveries in the last minute"),
        ),
        (
            Rule(name="alone", kind="queue_unattended", queue="*"),
            (False, "Group 'default' of queue 'jobs' has 2 consumers, and 12 messages waiting"),
            (True, "Group 'night' of queue 'mails' has no consumer, and 1 message waiting"),
        ),
    ],
    ids=lambda given: given.kind if isinstance(given, Rule) else "",
)
def test_each_group_of_a_queue_is_compared_with_the_limit(
    rule: Rule, jobs: tuple[bool, str], mails: tuple[bool, str]
) -> None:
    assert told(rule, JOBS, MAILS) == [("jobs/default", *jobs), ("mails/night", *mails)]


def test_a_rule_on_a_queue_may_be_about_one_group_and_must_name_what_exists() -> None:
    rule = Rule(name="deep", kind="queue_depth", queue="*", group="night", threshold=10)
    assert [subject for subject, _, _ in told(rule, JOBS, MAILS)] == ["mails/night"]
    with pytest.raises(NotFound, match=r"queue 'job'.*jobs"):
        told(Rule(name="deep", kind="queue_depth", queue="job"), JOBS)
    with pytest.raises(NotFound, match="'day'"):
        told(Rule(name="deep", kind="queue_depth", queue="jobs", group="day"), JOBS)
    with pytest.raises(ArgumentInvalid, match="the name of a queue, or a pattern"):
        Rule(name="deep", kind="queue_depth")
    with pytest.raises(ArgumentInvalid, match="it has none"):
        Rule(name="alone", kind="queue_unattended", queue="jobs", threshold=1)


def test_a_log_measures_its_queues_and_counts_the_redeliveries_of_a_minute(tmp_path: Path) -> None:
    clock = ManualClock()
    with headwater.open(tmp_path / "log", clock=clock) as log, log.queue("jobs", attempts_max=None) as queue:
        measures = LogMeasures(log)
        queue.put_many([1, 2])
        assert measures.queues() == [QueueHealth(queue="jobs", group="default", depth=2)]
        for _ in range(3):
            queue.take()[0].nack()
        clock.advance(seconds=30)
        health = QueueHealth(queue="jobs", group="default", depth=2, oldest_seconds=30.0, redeliveries=2, consumers=1)
        assert measures.queues() == [health]
        lines = Metrics(Host(log=log, settings=Settings())).scrape().splitlines()
        for name, value in {"depth": 2, "oldest_seconds": 30, "delivered_total": 3, "redelivered_total": 2}.items():
            assert f'headwater_queue_{name}{{queue="jobs",group="default"}} {value}' in lines
        clock.advance(seconds=61)
        [health] = measures.queues()
        assert health.redeliveries == 0
