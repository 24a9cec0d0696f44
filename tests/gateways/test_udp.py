"""Numbered datagrams: each is one row or one counted loss, whatever the network does, and nothing twice."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis.strategies import binary, booleans, integers, lists, sampled_from, tuples

import headwater
from headwater.clock import ManualClock
from headwater.errors import ArgumentInvalid, Closed
from headwater.gateways import AddressUnusable, UdpIn, UdpOut, UdpPublisher
from headwater.gateways.kinds import gateway_from_text
from headwater.gateways.udp import Address, UdpSender
from headwater.gateways.udp_in import UdpInSession
from headwater.gateways.udp_protocol import (
    RANGES_MAX,
    DatagramInvalid,
    Gaps,
    Repair,
    Ring,
    data_bytes,
    heartbeat_bytes,
    parse_datagram,
    request_bytes,
)
from headwater.log import Log
from headwater.testing import CrashAt, run_until_killed
from tests.conditions import until
from tests.laws import costly

HERE: Address = ("127.0.0.1", 1)
FATES = sampled_from(["deliver", "deliver", "drop", "double", "delay"])


def rows(log: Log) -> list[tuple[int, bytes]]:
    return [(row["sequence"], row["payload"]) for row in log.read("datagrams").rows()]


def take(session: UdpInSession, *datagrams: bytes) -> None:
    session.take([(datagram, HERE) for datagram in datagrams])


@given(
    fates=lists(FATES, min_size=1),
    rounds=lists(tuples(integers(0, 6), booleans()), min_size=1, max_size=8),
    kept=integers(1, 8),
)
@costly(10)
def test_rows_and_counted_losses_are_together_what_was_sent(
    tmp_path_factory: pytest.TempPathFactory, fates: list[str], rounds: list[tuple[int, bool]], kept: int
) -> None:
    clock = ManualClock()
    log = headwater.open(tmp_path_factory.mktemp("udp") / "log", clock=clock)
    ring = Ring(publisher=7, count_max=kept, bytes_max=10_000)
    session = UdpIn(port=0, repair_attempts=3).open(log)
    fate, delayed, lost = itertools.cycle(fates), list[bytes](), 0

    def network(datagrams: list[bytes]) -> list[bytes]:
        arrived, later = [], []
        for datagram in datagrams:
            match next(fate):
                case "deliver":
                    arrived.append(datagram)
                case "double":
                    arrived += [datagram, datagram]
                case "delay":
                    later.append(datagram)
        arrived += reversed(delayed)
        delayed[:] = later
        return arrived

    def ask(through: Callable[[list[bytes]], list[bytes]]) -> None:
        clock.advance(seconds=1)
        requests = through([data for data, _ in session.due()])
        answers = [answer for data in requests for answer in ring.answer(parse_datagram(data).ranges)]
        take(session, *through(answers))

    for count, restarted in rounds:
        take(session, *network([ring.add(b"%d" % (ring.sequence_next)) for _ in range(count)]))
        ask(network)
        if restarted:
            session.close()
            lost += session.counters.lost
            session = UdpIn(port=0, repair_attempts=3).open(log)
    take(session, ring.heartbeat(), *delayed)
    for _ in range(8):
        ask(lambda _: [])
    found = rows(log)
    assert session.missing == 0
    assert len(found) == len(set(found))
    assert all(payload == b"%d" % sequence for sequence, payload in found)
    assert len(found) + lost + session.counters.lost == ring.sequence_next
    states = log.read("datagrams.publishers").rows()
    if ring.sequence_next:
        assert states[-1]["sequence_next"] == len(found) + states[-1]["lost"]
    session.close()
    log.close()


@given(order=lists(integers(0, 30), unique=True, min_size=1), missing_max=integers(1, 40))
def test_duplicates_and_changed_orders_are_told_apart(order: list[int], missing_max: int) -> None:
    gaps = Gaps(Repair(delay_seconds=0.01, attempts=2), missing_max)
    taken = [gaps.take(sequence, now_us=0) for sequence in order]
    again = [gaps.take(sequence, now_us=0) for sequence in order]
    assert not any(again)
    late = sum(sequence < max(order[:place]) for place, sequence in enumerate(order) if place)
    assert gaps.reordered == sum(taken) - (len(order) - late)
    assert sum(taken) + gaps.lost + len(gaps.missing) == max(order) + 1
    assert len(gaps.missing) <= missing_max


@given(data=binary(max_size=60))
def test_bytes_of_any_kind_are_a_datagram_or_named_as_none(data: bytes) -> None:
    for begun in (data, b"HW\x01\x01" + data, b"HW\x01\x02" + data, b"HW\x01\x03" + data):
        with contextlib.suppress(DatagramInvalid):
            assert parse_datagram(begun).sequence >= 0


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return headwater.open(tmp_path / "log")


def test_what_is_no_datagram_is_a_dead_letter_and_nothing_grows_without_bound(log: Log) -> None:
    session = UdpIn(port=0, missing_max=10, publishers_max=2).open(log)
    take(
        session,
        b"hello",
        data_bytes(1, 2**63, b""),
        request_bytes(1, [range(3)]),
        heartbeat_bytes(1, sequence_next=1, oldest=2),
    )
    take(session, data_bytes(1, 2**62, b"far"), data_bytes(2, 0, b"two"), data_bytes(3, 0, b"three"))
    assert session.missing == 10
    assert session.counters.lost == 2**62 - 10
    assert (session.counters.received, session.counters.appended, session.counters.rejected) == (7, 2, 5)
    assert log.read("datagrams.dlq").count() == 5
    many = Gaps(Repair(delay_seconds=0, attempts=9), 10_000)
    for sequence in range(1, 2 * RANGES_MAX + 10, 2):
        many.take(sequence, now_us=0)
    asked = many.due(now_us=1)
    assert len(asked) == RANGES_MAX
    assert many.due(now_us=1)  # the others, without a loss of their turn
    session.close()


def test_who_joins_late_counts_from_the_beginning_or_from_now(log: Log) -> None:
    for start, missing in (("first", 100), ("now", 0)):
        session = UdpIn(topic=start, port=0, start=start).open(log)  # type: ignore[arg-type]  # both are allowed
        take(session, data_bytes(1, 100, b"x"))
        assert session.missing == missing
        session.close()


def test_a_publisher_that_is_silent_for_long_is_forgotten_and_what_is_missing_is_lost(tmp_path: Path) -> None:
    clock = ManualClock()
    log = headwater.open(tmp_path / "log", clock=clock)
    session = UdpIn(port=0, publisher_timeout="1 hour").open(log)
    take(session, data_bytes(1, 3, b"x"))
    clock.advance(seconds=3_700)
    session.step(seconds=0)
    assert (session.counters.lost, session.missing) == (3, 0)
    session.close()
    session = UdpIn(port=0).open(log)
    assert session._publishers == {}
    session.close()


class Dropper:
    """Drops every third datagram that goes to all, and nothing that is sent again."""

    def __init__(self, sender: UdpSender, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dropped = 0
        count, send = itertools.count(), sender.send

        def sends(data: bytes, *, to: Address | None = None) -> None:
            if to is None and data[3] == 1 and next(count) % 3 == 0:
                self.dropped += 1
            else:
                send(data, to=to)

        monkeypatch.setattr(sender, "send", sends)


def received(session: UdpInSession, count: int) -> bool:
    def stepped() -> bool:
        session.step(seconds=0.05)
        return session.counters.appended >= count

    return bool(until(stepped, f"{count} rows"))


@pytest.mark.parametrize("host", ["127.0.0.1", "239.255.77.1"])
def test_a_receiver_gets_again_what_the_network_lost(log: Log, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        session = UdpIn(host=host, port=0, interface="127.0.0.1").open(log)
    except AddressUnusable as error:
        pytest.skip(f"no multicast on this machine: {error.why}")
    with UdpPublisher(host, session.port, interface="127.0.0.1") as publisher:
        dropper = Dropper(publisher._sender, monkeypatch)
        for number in range(100):
            publisher.send(b"%d" % number)
        received(session, 100)
    assert dropper.dropped == 34
    assert sorted(rows(log)) == [(number, b"%d" % number) for number in range(100)]
    assert (session.counters.lost, session.counters.duplicates) == (0, 0)
    assert {row["publisher"] for row in log.read("datagrams").rows()} == {publisher.id}
    session.close()


def test_a_sender_says_what_it_cannot_send() -> None:
    publisher = UdpPublisher("127.0.0.1", 9)
    with pytest.raises(ArgumentInvalid, match="at most"):
        publisher.send(b"x" * 65_507)
    publisher.close()
    with pytest.raises(Closed):
        publisher.send(b"x")
    with pytest.raises(AddressUnusable):
        UdpPublisher("no.such.host.invalid", 9)


def test_rows_of_a_topic_arrive_once_also_when_the_sender_was_restarted(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.create("ticks", {"id": "int64"}, partitions=2)
    inward = UdpIn(port=0).open(log)
    gateway = UdpOut(topic="ticks", port=inward.port)
    for part in range(2):
        log.append("ticks", [{"id": number} for number in range(50 * part, 50 * part + 50)], partition=part)
    first = gateway.open(log)
    dropper = Dropper(first._sender, monkeypatch)

    def sent() -> bool:
        first.step(seconds=0.02)
        return first.counters.appended == 100

    until(sent)
    first.close()
    assert dropper.dropped
    second = gateway.open(log)  # it has sent nothing itself, and reads what is asked for from the topic

    def arrived() -> bool:
        second.step(seconds=0)
        second.beat()
        inward.step(seconds=0.02)
        return inward.counters.appended >= 100

    until(arrived)
    assert sorted(payload for _, payload in rows(log)) == sorted(b'{"id":%d}' % number for number in range(100))
    assert (inward.counters.lost, inward.missing) == (0, 0)
    second.close()
    inward.close()


def test_settings_and_topics_that_cannot_be_are_named(log: Log) -> None:
    log.create("states", {"id": "int64"}, key="id", compact=True)
    with pytest.raises(ArgumentInvalid, match="not compacted"):
        UdpOut(topic="states").open(log)
    with pytest.raises(ArgumentInvalid, match="first or now"):
        gateway_from_text("udp-in", ["start=later"])
    session = gateway_from_text("udp-in", ["port=0", "repair_delay=5 ms"]).open(log)
    with pytest.raises(AddressUnusable):
        UdpIn(port=int(session.address.rpartition(":")[2])).open(log)
    session.close()


@pytest.mark.process
@pytest.mark.parametrize("point", ["commit.written", "commit.durable", "commit.flipped"])
def test_no_datagram_is_a_row_twice_after_kill_9(tmp_path: Path, point: str) -> None:
    """The network repeats everything that it has ever sent to the next process."""
    ring = Ring(publisher=7, count_max=100, bytes_max=10_000)
    sent = [ring.add(b"%d" % number) for number in range(12)]

    def work() -> None:
        with headwater.open(tmp_path / "log") as log:
            session = UdpIn(port=0).open(log)
            for start in range(0, 12, 3):
                take(session, sent[start], sent[start + 2])

    ended = run_until_killed(work, at=CrashAt(point=point, visit=3), errors=tmp_path / "errors")
    assert ended.killed, ended
    with headwater.open(tmp_path / "log") as log:
        session = UdpIn(port=0).open(log)
        take(session, *sent, ring.heartbeat())
        assert sorted(rows(log)) == [(number, b"%d" % number) for number in range(12)]
        [state] = log.read("datagrams.publishers").rows()[-1:]
        assert (state["sequence_next"], state["lost"], state["missing"]) == (12, 0, "[]")
        session.close()
