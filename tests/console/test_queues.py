"""Queues in the console: what waits and for how long, who works on it; put, paused, resumed and replayed by callers who may."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.console.topology.flow import flow_of
from headwater.log import Log
from headwater.queues import Outgoing, Queue
from headwater.services import Settings
from headwater.services.host import Host
from headwater.services.queues import Queues
from headwater.services.tokens import Tokens
from tests.console.simulation import SimulatedConsole


@pytest.fixture
def jobs(log: Log) -> Iterator[Queue]:
    """A queue of two groups: one has a worker with a message, the other has none."""
    with log.queue("jobs", ordered=True) as queue:
        log.queue("jobs", group="search").close()
        queue.put_many([Outgoing(body={"picture": number}, key=f"user-{number}") for number in range(4)])
        queue.take(consumer="elsewhere")[0].nack()
        queue.take(consumer="elsewhere")
        yield queue


@pytest.mark.usefixtures("jobs")
def test_each_group_of_a_queue_is_a_row_and_one_without_a_consumer_comes_first(console: SimulatedConsole) -> None:
    page = console.open("/queues").later()
    page.sees_first("Queues", "jobs search no consumer")
    assert "3" in page.sees_row("Queues", "jobs default at work")
    console.open("/").later().sees_row("Busiest topics", "jobs.journal internal")
    assert page.links("Queues")["jobs"].startswith("/console/queues/jobs?group=")


def test_a_queue_shows_what_waits_who_holds_messages_and_what_comes_next(
    jobs: Queue, console: SimulatedConsole
) -> None:
    page = console.open("/queues/jobs").later()
    page.sees("3", within="Depth").sees("1", within="In flight").sees("1", within="Redelivered")
    assert all(text in page.sees_row("Consumers", "elsewhere") for text in ("its lease", "1 message"))
    assert '{"picture":1}' in page.sees_row("Next messages", "0-1 user-1")
    page.sees("kept for each key")
    for chart in ("Messages over time", "Messages per second over time"):
        assert "jobs" not in page.chart(chart)
    jobs.take(consumer="elsewhere")[0].reject(reason="no such picture")
    page.later().sees("1", within="Dead letters").sees("Correct what made them fail").press("Redrive")
    page.sees("1 would be redriven")
    page = console.open("/queues/jobs?group=search").later()
    page.sees("4", within="Depth").sees("no worker takes any")
    assert "There is no queue group 'serch'" in console.open("/queues/jobs?group=serch").text("page")


def test_a_message_is_put_by_hand(jobs: Queue, console: SimulatedConsole) -> None:
    page = console.open("/queues/jobs?group=search").press("Put a message")
    page.write("Body, as JSON", "{").press("Put").hears("Give JSON")
    page.write("Body, as JSON", '{"picture": 9}').write("Key", "ada").press("Put").hears("Message 0-4 is in jobs.")
    assert [(one.body, one.key) for one in jobs.peek(9)][-1] == ({"picture": 9}, "ada")
    page.later().sees_row("Next messages", "0-4 ada")


def test_a_group_is_paused_resumed_and_replayed(log: Log, jobs: Queue, console: SimulatedConsole) -> None:
    page = console.open("/queues/jobs").press("Pause").sees("Nothing is delivered to it until it goes on")
    page.press("Pause").hears("Group default of jobs is paused.")
    assert jobs.stats().paused
    page.later().sees("The group is paused").press("Resume").hears("Group default of jobs goes on.")
    assert not jobs.stats().paused
    jobs.ack_many(jobs.take(9))
    page.press("Replay").sees("also acknowledged ones").press("Replay").hears("Group default of jobs is replayed.")
    assert jobs.stats().waiting == 4
    actions = [row["action"] for row in log.read("__audit").rows()]
    assert actions[-3:] == ["queues.pause", "queues.resume", "queues.replay"]


def test_the_workers_of_a_queue_are_nodes_of_the_topology(log: Log, jobs: Queue) -> None:
    jobs.take(consumer="elsewhere")[0].reject()
    queues = Queues(Host(log=log, settings=Settings())).list_queues()
    flow = flow_of([], [], queues=queues, topics=log.topics())
    assert flow.after("topic:jobs") == ["queue:jobs/default", "queue:jobs/search"]
    assert flow.after("queue:jobs/default") == ["topic:jobs.dlq"]
    assert flow.stations["queue:jobs/search"].href == "/console/queues/jobs?group=search"
    assert flow_of([], [], queues=queues, sees=lambda _: False).stations == {}


@pytest.mark.usefixtures("jobs")
def test_a_caller_who_reads_changes_nothing_and_one_who_reads_other_topics_sees_no_queue(
    log: Log, console: SimulatedConsole
) -> None:
    reader = Tokens(log.home).create("auditor", ["read:jobs"])
    page = console.open("/queues/jobs", reader).sees("Next messages")
    page.sees_not("Put a message").sees_not("Pause").sees_not("Replay")
    other = Tokens(log.home).create("clerk", ["read:orders"])
    assert console.open("/queues/jobs", other).text("page").startswith("ScopeMissing")
    console.open("/queues", other).later().sees("There are no queues")
    Tokens(log.home).revoke("auditor")
    Tokens(log.home).revoke("clerk")
